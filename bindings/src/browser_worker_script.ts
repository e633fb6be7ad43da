// The file that browser_worker.ts starts: as one, since a new worker asks for each file that it imports.
import "./worker_script.js";
