// The page: asks about once a second while someone looks, and draws what came.

import { byId, clock, setNote, setText } from "./dom.js";
import { draw } from "./picture.js";
import { Recent } from "./recent.js";
import { ask, NoAnswer } from "./server.js";
import { drawEvents, drawFigures, drawLanes, drawModels } from "./tables.js";

const EVERY_MS = 1000;
/** How long to wait at most before a server that does not answer is asked again. */
const LONGEST_MS = 5000;
const PAUSED = "paused while hidden";

const recent = new Recent();
let timer;
let asking = false;
let silentSince = null;
let wait = EVERY_MS;

function show(answer) {
  const { memory, metrics, problems } = answer;
  drawBuild(metrics);
  drawFigures(answer, recent);
  drawModels(answer, recent);
  setNote(byId("load-line-note"), problems.memory && `${problems.memory}: the picture cannot be drawn.`);
  document.body.classList.toggle("blind", memory === null);
  if (memory) {
    draw(memory, metrics);
    drawLanes(memory, recent);
    drawEvents(memory);
  }
}

function drawBuild(metrics) {
  const labels = metrics?.all("plimsoll_build_info")[0]?.labels;
  setText(byId("build"), labels ? `${labels.version} on ${labels.device}` : "");
  document.title = `Plimsoll · ${location.host}`;
}

/** Says how it stands with the server. */
function tell(state, sentence) {
  byId("status").dataset.state = state;
  setText(byId("status"), sentence);
  document.body.classList.toggle("stale", state === "silent");
}

async function round() {
  asking = true;
  try {
    const answer = await ask();
    recent.add(answer);
    show(answer);
    [silentSince, wait] = [null, EVERY_MS];
    tell("live", "live");
  } catch (error) {
    if (!(error instanceof NoAnswer)) console.error(error);
    silentSince ??= Date.now();
    wait = Math.min(wait * 2, LONGEST_MS);
    const fault = error instanceof NoAnswer ? "the server does not answer" : "its answer cannot be shown";
    tell("silent", `${fault} since ${clock(silentSince)}; what is shown is of before`);
  }
  asking = false;
  if (document.hidden) tell("paused", PAUSED);
  else timer = setTimeout(round, wait);
}

/** A page that nobody sees asks nothing; what it knew of the last seconds is too old when it is seen again. */
function follow() {
  clearTimeout(timer);
  if (document.hidden) {
    tell("paused", PAUSED);
  } else if (!asking) {
    recent.clear();
    wait = EVERY_MS;
    round();
  }
}

document.addEventListener("visibilitychange", follow);
follow();
