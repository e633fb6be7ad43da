// One cold start in a Node process of its own; the thread count is the argument.
import { coldStart } from "./cold_start.mjs";

const result = await coldStart(() => import("../dist/node.js"), Number(process.argv[2]));
process.send({ result }, () => process.exit(0));
