// One part of the benchmark in a Node process of its own: options come as a JSON argument, the result
// goes to the parent as a message.
import { nodeEnvironment } from "./node_environment.mjs";
import { runBenchmark } from "./run.mjs";

const options = JSON.parse(process.argv[2]);
const result = await runBenchmark(options, nodeEnvironment(options.threads), (...progress) =>
  process.send({ progress }),
);
process.send({ result }, () => process.exit(0));
