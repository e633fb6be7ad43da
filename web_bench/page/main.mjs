// The page: hands work to a worker, where nothing else runs and where threads may wait.

function ask(worker, message) {
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.progress) globalThis.tellProgress?.(...data.progress);
      if (data.error) reject(new Error(data.error));
      if (data.result) resolve(data.result);
      if (data.error || data.result) worker.terminate();
    };
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage(message);
  });
}

globalThis.runBenchmark = (options) =>
  ask(new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" }), options);

globalThis.coldStart = (threads) =>
  ask(new Worker(new URL("./cold_worker.mjs", import.meta.url), { type: "module" }), threads);
