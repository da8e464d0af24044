// Made by python -m specdec.report.schema; a test keeps it as the code says.
export const SCHEMA = {
  "version": 4,
  "lines": {
    "begin": "Begin",
    "error": "ErrorLine",
    "finished": "FinishedLine",
    "lane_end": "LaneEnd",
    "part": "Part",
    "round": "RoundLine",
    "started": "StartedLine",
    "verdict": "VerdictLine"
  },
  "types": {
    "Begin": {
      "type": "object",
      "required": [
        "event",
        "version",
        "at",
        "pair",
        "settings",
        "lanes",
        "runs"
      ],
      "properties": {
        "event": {
          "type": "string",
          "const": "begin"
        },
        "version": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "at": {
          "type": "number",
          "exclusiveMaximum": 100000000000.0,
          "maximum": 1000000000000000.0,
          "minimum": 0
        },
        "pair": {
          "type": "string",
          "maxLength": 100000
        },
        "settings": {
          "type": "object",
          "additionalProperties": {
            "anyOf": [
              {
                "type": "string",
                "maxLength": 100000
              },
              {
                "type": "integer",
                "maximum": 9007199254740991,
                "minimum": -9007199254740991
              },
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              },
              {
                "type": "boolean"
              },
              {
                "type": "null"
              }
            ]
          }
        },
        "lanes": {
          "type": "array",
          "items": {
            "type": "string",
            "maxLength": 100000
          },
          "maxItems": 100,
          "minItems": 1
        },
        "runs": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": 1
        }
      }
    },
    "Decision": {
      "type": "object",
      "additionalProperties": false,
      "required": [
        "p",
        "q",
        "residual"
      ],
      "properties": {
        "p": {
          "type": "array",
          "items": {
            "type": "array",
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [
              {
                "type": "integer",
                "maximum": 9007199254740991,
                "minimum": -9007199254740991
              },
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              }
            ]
          },
          "maxItems": 1000000
        },
        "q": {
          "anyOf": [
            {
              "type": "array",
              "items": {
                "type": "array",
                "maxItems": 2,
                "minItems": 2,
                "prefixItems": [
                  {
                    "type": "integer",
                    "maximum": 9007199254740991,
                    "minimum": -9007199254740991
                  },
                  {
                    "type": "number",
                    "maximum": 1000000000000000.0,
                    "minimum": -1000000000000000.0
                  }
                ]
              },
              "maxItems": 1000000
            },
            {
              "type": "null"
            }
          ]
        },
        "residual": {
          "anyOf": [
            {
              "type": "array",
              "items": {
                "type": "array",
                "maxItems": 2,
                "minItems": 2,
                "prefixItems": [
                  {
                    "type": "integer",
                    "maximum": 9007199254740991,
                    "minimum": -9007199254740991
                  },
                  {
                    "type": "number",
                    "maximum": 1000000000000000.0,
                    "minimum": -1000000000000000.0
                  }
                ]
              },
              "maxItems": 1000000
            },
            {
              "type": "null"
            }
          ]
        }
      }
    },
    "Doubt": {
      "type": "string",
      "enum": [
        "busy",
        "too_fast",
        "luck",
        "above_limit",
        "stall",
        "wide_spread",
        "checking_shrinks",
        "few_runs"
      ]
    },
    "DraftFacts": {
      "type": "object",
      "required": [
        "kind",
        "text"
      ],
      "properties": {
        "kind": {
          "type": "string",
          "maxLength": 1000
        },
        "text": {
          "type": "string",
          "maxLength": 1000
        },
        "python": {
          "type": "string",
          "maxLength": 1000
        },
        "depends_on_start": {
          "type": "boolean"
        },
        "name": {
          "type": "string",
          "maxLength": 1000
        },
        "layers": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 1000000,
              "minimum": 0
            },
            {
              "type": "null"
            }
          ]
        },
        "parameters": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": 0
        },
        "dtype": {
          "type": "string",
          "maxLength": 1000
        },
        "rows": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": 0
        },
        "local": {
          "type": "boolean"
        },
        "revision": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 1000
            },
            {
              "type": "null"
            }
          ]
        },
        "bits": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 1000000,
              "minimum": 0
            },
            {
              "type": "null"
            }
          ]
        },
        "own_tokenizer": {
          "type": "boolean"
        },
        "agreement": {
          "type": "number",
          "maximum": 1,
          "minimum": 0
        },
        "max_ngram": {
          "type": "integer",
          "maximum": 1000000,
          "minimum": 0
        },
        "min_ngram": {
          "type": "integer",
          "maximum": 1000000,
          "minimum": 0
        },
        "layer_ids": {
          "type": "array",
          "items": {
            "type": "integer",
            "maximum": 1000000,
            "minimum": 0
          },
          "maxItems": 100
        },
        "more": {
          "type": "object",
          "additionalProperties": {
            "anyOf": [
              {
                "type": "string",
                "maxLength": 1000
              },
              {
                "type": "integer",
                "maximum": 9007199254740991,
                "minimum": -9007199254740991
              },
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              },
              {
                "type": "boolean"
              },
              {
                "type": "null"
              }
            ]
          },
          "maxProperties": 20
        },
        "own_forward": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 1000
            },
            {
              "type": "null"
            }
          ]
        }
      }
    },
    "DraftToken": {
      "type": "object",
      "additionalProperties": false,
      "required": [
        "token_id",
        "status",
        "draft_prob",
        "target_prob",
        "accept_prob",
        "draw",
        "target_token_id",
        "draft_confidence"
      ],
      "properties": {
        "token_id": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "status": {
          "type": "string",
          "enum": [
            "accepted",
            "rejected",
            "discarded"
          ]
        },
        "draft_prob": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "target_prob": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "accept_prob": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "draw": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "target_token_id": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": -9007199254740991
            },
            {
              "type": "null"
            }
          ]
        },
        "draft_confidence": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "overlap": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        }
      }
    },
    "EngineFacts": {
      "type": "object",
      "required": [
        "name",
        "reason"
      ],
      "properties": {
        "name": {
          "type": "string",
          "enum": [
            "eager",
            "graph"
          ]
        },
        "reason": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 1000
            },
            {
              "type": "null"
            }
          ]
        }
      }
    },
    "ErrorLine": {
      "type": "object",
      "required": [
        "event",
        "message"
      ],
      "properties": {
        "event": {
          "type": "string",
          "const": "error"
        },
        "message": {
          "type": "string",
          "maxLength": 100000
        }
      }
    },
    "Figure": {
      "type": "object",
      "required": [
        "value"
      ],
      "properties": {
        "value": {
          "type": "string",
          "maxLength": 100000
        },
        "name": {
          "type": "string",
          "maxLength": 100000
        },
        "label": {
          "type": "string",
          "maxLength": 100000
        }
      }
    },
    "FinishedLine": {
      "type": "object",
      "additionalProperties": false,
      "required": [
        "finish_reason",
        "prefill_seconds",
        "elapsed_seconds",
        "event"
      ],
      "properties": {
        "finish_reason": {
          "type": "string",
          "enum": [
            "eos",
            "length",
            "stop",
            "deadline"
          ]
        },
        "prefill_seconds": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "elapsed_seconds": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "cpu_seconds": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "event": {
          "type": "string",
          "const": "finished"
        }
      }
    },
    "GammaRecord": {
      "type": "object",
      "required": [
        "gamma",
        "tokens_per_pass",
        "passes",
        "ms_per_token",
        "gain",
        "share",
        "exact",
        "sentence",
        "factor",
        "figures",
        "notes"
      ],
      "properties": {
        "gamma": {
          "type": "integer",
          "maximum": 16,
          "minimum": 0
        },
        "tokens_per_pass": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "passes": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "ms_per_token": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "gain": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "share": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "exact": {
          "type": "boolean"
        },
        "sentence": {
          "type": "string",
          "maxLength": 100000
        },
        "factor": {
          "type": "string",
          "maxLength": 100000
        },
        "figures": {
          "type": "array",
          "items": {
            "$ref": "Figure"
          },
          "maxItems": 8
        },
        "notes": {
          "type": "array",
          "items": {
            "$ref": "Note"
          },
          "maxItems": 8
        }
      }
    },
    "Kind": {
      "type": "string",
      "enum": [
        "faster",
        "faster_unsplit",
        "faster_perhaps",
        "faster_by_engine",
        "unclear",
        "unclear_unsplit",
        "unclear_gains",
        "unclear_loses",
        "slower",
        "slower_unsplit",
        "slower_perhaps",
        "slower_by_engine",
        "busy",
        "noisy",
        "no_guesses",
        "nothing_guessed",
        "too_few_tokens",
        "no_token",
        "incomplete",
        "too_early",
        "not_measured"
      ]
    },
    "LaneEnd": {
      "type": "object",
      "required": [
        "event",
        "lane",
        "name",
        "duration"
      ],
      "properties": {
        "event": {
          "type": "string",
          "const": "lane_end"
        },
        "lane": {
          "type": "string",
          "maxLength": 100000
        },
        "name": {
          "type": "string",
          "maxLength": 100000
        },
        "duration": {
          "type": "string",
          "maxLength": 100000
        },
        "spoken": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        }
      }
    },
    "MachineFacts": {
      "type": "object",
      "required": [
        "cpu",
        "cores",
        "threads",
        "device"
      ],
      "properties": {
        "cpu": {
          "type": "string",
          "maxLength": 1000
        },
        "cores": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 1000000,
              "minimum": 0
            },
            {
              "type": "null"
            }
          ]
        },
        "threads": {
          "type": "integer",
          "maximum": 1000000,
          "minimum": 0
        },
        "device": {
          "type": "string",
          "maxLength": 1000
        },
        "gpu": {
          "type": "string",
          "maxLength": 1000
        }
      }
    },
    "ModelFacts": {
      "type": "object",
      "required": [
        "name",
        "layers",
        "dtype",
        "bits"
      ],
      "properties": {
        "name": {
          "type": "string",
          "maxLength": 1000
        },
        "layers": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 1000000,
              "minimum": 0
            },
            {
              "type": "null"
            }
          ]
        },
        "parameters": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": 0
        },
        "dtype": {
          "type": "string",
          "maxLength": 1000
        },
        "rows": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": 0
        },
        "local": {
          "type": "boolean"
        },
        "revision": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 1000
            },
            {
              "type": "null"
            }
          ]
        },
        "bits": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 1000000,
              "minimum": 0
            },
            {
              "type": "null"
            }
          ]
        },
        "own_forward": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 1000
            },
            {
              "type": "null"
            }
          ]
        }
      }
    },
    "Note": {
      "type": "object",
      "additionalProperties": false,
      "required": [
        "kind",
        "text"
      ],
      "properties": {
        "kind": {
          "type": "string",
          "maxLength": 100000
        },
        "text": {
          "type": "string",
          "maxLength": 100000
        }
      }
    },
    "PairFacts": {
      "type": "object",
      "required": [
        "name",
        "device",
        "compiled",
        "target",
        "draft"
      ],
      "properties": {
        "name": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 1000
            },
            {
              "type": "null"
            }
          ]
        },
        "context": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": 0
            },
            {
              "type": "null"
            }
          ]
        },
        "device": {
          "type": "string",
          "maxLength": 1000
        },
        "compiled": {
          "type": "boolean"
        },
        "target": {
          "$ref": "ModelFacts"
        },
        "draft": {
          "anyOf": [
            {
              "$ref": "DraftFacts"
            },
            {
              "type": "null"
            }
          ]
        },
        "engine": {
          "$ref": "EngineFacts"
        }
      }
    },
    "Part": {
      "type": "object",
      "required": [
        "event",
        "number",
        "from"
      ],
      "properties": {
        "event": {
          "type": "string",
          "const": "part"
        },
        "number": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "from": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        }
      }
    },
    "Reason": {
      "type": "string",
      "enum": [
        "guesses_cost",
        "few_kept",
        "checking_grows",
        "checking_or_loop",
        "uneven",
        "overhead",
        "cut",
        "unknown"
      ]
    },
    "RoundLine": {
      "type": "object",
      "additionalProperties": false,
      "required": [
        "index",
        "token_id",
        "token_kind",
        "committed_ids",
        "draft_seconds",
        "verify_seconds",
        "elapsed_seconds",
        "draft",
        "event"
      ],
      "properties": {
        "index": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "token_id": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": -9007199254740991
            },
            {
              "type": "null"
            }
          ]
        },
        "token_kind": {
          "anyOf": [
            {
              "type": "string",
              "enum": [
                "correction",
                "bonus",
                "target"
              ]
            },
            {
              "type": "null"
            }
          ]
        },
        "committed_ids": {
          "type": "array",
          "items": {
            "type": "integer",
            "maximum": 9007199254740991,
            "minimum": -9007199254740991
          },
          "maxItems": 1000000
        },
        "draft_seconds": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "verify_seconds": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "elapsed_seconds": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "model_seconds": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "target_margin": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "decision": {
          "anyOf": [
            {
              "$ref": "Decision"
            },
            {
              "type": "null"
            }
          ]
        },
        "missed": {
          "type": "array",
          "items": {
            "type": "array",
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [
              {
                "type": "integer",
                "maximum": 9007199254740991,
                "minimum": -9007199254740991
              },
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              }
            ]
          },
          "maxItems": 1000000
        },
        "reread": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "state_seconds": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "draft": {
          "anyOf": [
            {
              "type": "array",
              "items": {
                "$ref": "DraftToken"
              },
              "maxItems": 64
            },
            {
              "type": "null"
            }
          ]
        },
        "event": {
          "type": "string",
          "const": "round"
        },
        "tokens": {
          "type": "object",
          "additionalProperties": {
            "type": "string",
            "maxLength": 100000
          }
        }
      }
    },
    "SamplingParams": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "max_new_tokens": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "temperature": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "top_k": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "top_p": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "min_p": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "repetition_penalty": {
          "type": "number",
          "maximum": 1000000000000000.0,
          "minimum": -1000000000000000.0
        },
        "seed": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": -9007199254740991
            },
            {
              "type": "null"
            }
          ]
        },
        "stop": {
          "type": "array",
          "items": {
            "type": "string",
            "maxLength": 100000
          },
          "maxItems": 1000000
        },
        "ignore_eos": {
          "type": "boolean"
        }
      }
    },
    "StartedLine": {
      "type": "object",
      "additionalProperties": false,
      "required": [
        "lane",
        "prompt_ids",
        "params",
        "gamma",
        "acceptance",
        "accept_top_k",
        "pair",
        "machine",
        "versions",
        "neutralised",
        "event"
      ],
      "properties": {
        "lane": {
          "type": "string",
          "maxLength": 100000
        },
        "prompt_ids": {
          "type": "array",
          "items": {
            "type": "integer",
            "maximum": 9007199254740991,
            "minimum": -9007199254740991
          },
          "maxItems": 1000000
        },
        "params": {
          "$ref": "SamplingParams"
        },
        "gamma": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": -9007199254740991
            },
            {
              "type": "string",
              "maxLength": 100000
            }
          ]
        },
        "acceptance": {
          "type": "string",
          "maxLength": 100000
        },
        "accept_top_k": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": -9007199254740991
            },
            {
              "type": "null"
            }
          ]
        },
        "pair": {
          "$ref": "PairFacts"
        },
        "machine": {
          "$ref": "MachineFacts"
        },
        "versions": {
          "type": "object",
          "additionalProperties": {
            "type": "string",
            "maxLength": 100000
          }
        },
        "neutralised": {
          "type": "object",
          "additionalProperties": true
        },
        "claims_lossless": {
          "type": "boolean"
        },
        "event": {
          "type": "string",
          "const": "started"
        },
        "version": {
          "type": "integer",
          "maximum": 9007199254740991,
          "minimum": -9007199254740991
        },
        "tokens": {
          "type": "object",
          "additionalProperties": {
            "type": "string",
            "maxLength": 100000
          }
        },
        "head": {
          "type": "array",
          "items": {
            "type": "string",
            "maxLength": 100000
          },
          "maxItems": 1000000
        }
      }
    },
    "Table": {
      "type": "object",
      "required": [
        "columns",
        "rows"
      ],
      "properties": {
        "columns": {
          "type": "array",
          "items": {
            "type": "string",
            "maxLength": 100000
          },
          "maxItems": 20
        },
        "rows": {
          "type": "array",
          "items": {
            "type": "array",
            "items": {
              "type": "string",
              "maxLength": 100000
            },
            "maxItems": 20
          },
          "maxItems": 20
        }
      }
    },
    "VerdictLine": {
      "type": "object",
      "additionalProperties": false,
      "required": [
        "kind",
        "sentence",
        "notes",
        "stopped",
        "reason",
        "doubts",
        "factor",
        "about",
        "faster",
        "gain",
        "engine",
        "speculation",
        "caption",
        "runs",
        "shown",
        "same",
        "figures",
        "rates",
        "lanes",
        "places",
        "passes",
        "details",
        "time",
        "why",
        "whatif",
        "whatif_refused",
        "warning",
        "end",
        "saved",
        "chart",
        "event"
      ],
      "properties": {
        "kind": {
          "$ref": "Kind"
        },
        "sentence": {
          "type": "string",
          "maxLength": 100000
        },
        "notes": {
          "type": "array",
          "items": {
            "$ref": "Note"
          },
          "maxItems": 100
        },
        "stopped": {
          "type": "boolean"
        },
        "reason": {
          "anyOf": [
            {
              "$ref": "Reason"
            },
            {
              "type": "null"
            }
          ]
        },
        "doubts": {
          "type": "array",
          "items": {
            "$ref": "Doubt"
          },
          "maxItems": 8
        },
        "factor": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        },
        "about": {
          "type": "boolean"
        },
        "faster": {
          "type": "boolean"
        },
        "gain": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "engine": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "speculation": {
          "anyOf": [
            {
              "type": "number",
              "maximum": 1000000000000000.0,
              "minimum": -1000000000000000.0
            },
            {
              "type": "null"
            }
          ]
        },
        "caption": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        },
        "runs": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": -9007199254740991
            },
            {
              "type": "null"
            }
          ]
        },
        "shown": {
          "anyOf": [
            {
              "type": "integer",
              "maximum": 9007199254740991,
              "minimum": 0
            },
            {
              "type": "null"
            }
          ]
        },
        "same": {
          "anyOf": [
            {
              "type": "boolean"
            },
            {
              "type": "null"
            }
          ]
        },
        "figures": {
          "anyOf": [
            {
              "type": "array",
              "items": {
                "$ref": "Figure"
              },
              "maxItems": 8
            },
            {
              "type": "null"
            }
          ]
        },
        "rates": {
          "anyOf": [
            {
              "type": "object",
              "additionalProperties": {
                "type": "string",
                "maxLength": 100000
              }
            },
            {
              "type": "null"
            }
          ]
        },
        "lanes": {
          "anyOf": [
            {
              "$ref": "Table"
            },
            {
              "type": "null"
            }
          ]
        },
        "places": {
          "anyOf": [
            {
              "$ref": "Table"
            },
            {
              "type": "null"
            }
          ]
        },
        "passes": {
          "anyOf": [
            {
              "$ref": "Table"
            },
            {
              "type": "null"
            }
          ]
        },
        "details": {
          "anyOf": [
            {
              "type": "array",
              "items": {
                "$ref": "Figure"
              },
              "maxItems": 100
            },
            {
              "type": "null"
            }
          ]
        },
        "time": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        },
        "why": {
          "anyOf": [
            {
              "$ref": "Why"
            },
            {
              "type": "null"
            }
          ]
        },
        "whatif": {
          "anyOf": [
            {
              "$ref": "WhatIf"
            },
            {
              "type": "null"
            }
          ]
        },
        "whatif_refused": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        },
        "warning": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        },
        "end": {
          "anyOf": [
            {
              "$ref": "LaneEnd"
            },
            {
              "type": "null"
            }
          ]
        },
        "saved": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        },
        "chart": {
          "anyOf": [
            {
              "type": "string",
              "maxLength": 100000
            },
            {
              "type": "null"
            }
          ]
        },
        "event": {
          "type": "string",
          "const": "verdict"
        }
      }
    },
    "WhatIf": {
      "type": "object",
      "required": [
        "hits",
        "wrong",
        "lengths",
        "costs",
        "best",
        "exact",
        "origin",
        "notes"
      ],
      "properties": {
        "hits": {
          "type": "array",
          "items": {
            "type": "integer",
            "maximum": 16,
            "minimum": 0
          },
          "maxItems": 1000000
        },
        "wrong": {
          "type": "array",
          "items": {
            "anyOf": [
              {
                "type": "integer",
                "maximum": 9007199254740991,
                "minimum": -9007199254740991
              },
              {
                "type": "null"
              }
            ]
          },
          "maxItems": 1000000
        },
        "lengths": {
          "type": "array",
          "items": {
            "$ref": "GammaRecord"
          },
          "maxItems": 17,
          "minItems": 17
        },
        "costs": {
          "type": "array",
          "items": {
            "type": "array",
            "maxItems": 3,
            "minItems": 3,
            "prefixItems": [
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              },
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              },
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              }
            ]
          },
          "maxItems": 17,
          "minItems": 17
        },
        "best": {
          "type": "integer",
          "maximum": 16,
          "minimum": 0
        },
        "exact": {
          "type": "boolean"
        },
        "origin": {
          "type": "string",
          "maxLength": 100000
        },
        "notes": {
          "type": "array",
          "items": {
            "$ref": "Note"
          },
          "maxItems": 8
        }
      }
    },
    "Why": {
      "type": "object",
      "required": [
        "title",
        "text",
        "figures",
        "steps"
      ],
      "properties": {
        "title": {
          "type": "string",
          "maxLength": 100000
        },
        "text": {
          "type": "string",
          "maxLength": 100000
        },
        "figures": {
          "type": "array",
          "items": {
            "$ref": "Figure"
          },
          "maxItems": 20
        },
        "steps": {
          "type": "array",
          "items": {
            "type": "array",
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [
              {
                "type": "string",
                "maxLength": 100000
              },
              {
                "type": "number",
                "maximum": 1000000000000000.0,
                "minimum": -1000000000000000.0
              }
            ]
          },
          "maxItems": 20
        }
      }
    }
  }
};
