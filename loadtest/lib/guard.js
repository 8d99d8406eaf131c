// k6 logs an exception and goes on, and no threshold sees it. Here it ends the run with an exit code that is not 0.

import exec from 'k6/execution';

/** The scenario function, for a scenario to export as its default. */
export const guarded = (scenario) => (data) => {
  try {
    scenario(data);
  } catch (error) {
    exec.test.abort(`${error}`);
  }
};
