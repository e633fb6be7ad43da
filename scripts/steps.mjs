// A run is a list of named steps: heading and elapsed time for each, the first failure ends it.
const began = performance.now();
const times = [];

function seconds(since) {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}

// One line a step that has begun, and one of all.
export function stepTimes() {
  const lines = [...times, [seconds(began), "in all"]];
  return lines.map(([time, title]) => `${time.padStart(9)}  ${title}`);
}

export async function step(title, work) {
  const start = performance.now();
  console.log(`\n=== ${title} (at ${seconds(began)})`);
  try {
    const result = await work();
    console.log(`=== ${title}: done in ${seconds(start)}`);
    return result;
  } catch (error) {
    console.log(`=== ${title}: FAILED after ${seconds(start)}`);
    throw error;
  } finally {
    times.push([seconds(start), title]);
  }
}

// Runs a script's main function; its failure is a message and an exit status, not a stack trace.
export async function main(work) {
  try {
    await work();
  } catch (error) {
    console.error(`\nheed: ${error.message}`);
    process.exitCode = 1;
  }
}
