// Made by python -m specdec.report.schema; a test keeps it as the code says.
export const SCHEMA = {
  "lines": {
    "begin": "Begin",
    "error": "ErrorLine",
    "finished": "FinishedLine",
    "lane_end": "LaneEnd",
    "part": "Part",
    "round": "RoundLine",
    "started": "StartedLine",
    "verdict": "Verdict"
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
        "value",
        "label"
      ],
      "properties": {
        "value": {
          "type": "string",
          "maxLength": 100000
        },
        "label": {
          "type": "string",
          "maxLength": 100000
        },
        "name": {
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
        "exact"
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
        }
      }
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
      },
      "required": []
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
          "type": "object",
          "additionalProperties": true
        },
        "machine": {
          "type": "object",
          "additionalProperties": true
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
    "Verdict": {
      "type": "object",
      "required": [
        "event",
        "sentence",
        "notes"
      ],
      "properties": {
        "event": {
          "type": "string",
          "const": "verdict"
        },
        "sentence": {
          "type": "string",
          "maxLength": 100000
        },
        "notes": {
          "type": "array",
          "items": {
            "type": "string",
            "maxLength": 100000
          },
          "maxItems": 100
        },
        "kind": {
          "type": "string",
          "maxLength": 100000
        },
        "reason": {
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
        "doubts": {
          "type": "array",
          "items": {
            "type": "string",
            "maxLength": 100000
          },
          "maxItems": 8
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
        "assumed",
        "best",
        "exact"
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
        "assumed": {
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
        "best": {
          "type": "integer",
          "maximum": 16,
          "minimum": 0
        },
        "exact": {
          "type": "boolean"
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
