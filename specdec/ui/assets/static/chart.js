// A page of one chart without a server; Plotly's own script has drawn it.
import { answerSaves } from "../lib/save_as.js";
import { followTheme } from "../lib/theme.js";

followTheme();
answerSaves();
