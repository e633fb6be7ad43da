// Runs before all other scripts of a page: keeps what went wrong in it.
(() => {
  const complaints = [];
  window.heedComplaints = complaints;
  for (const level of ["error", "warn"]) {
    const say = console[level];
    console[level] = (...args) => {
      complaints.push(`console.${level}: ${args.map(String).join(" ")}`);
      say.apply(console, args);
    };
  }
  document.addEventListener("securitypolicyviolation", (event) => {
    complaints.push(`policy: ${event.violatedDirective} ${event.blockedURI}`);
  });
  window.addEventListener("unhandledrejection", ({ reason }) => {
    complaints.push(`unhandled: ${reason}`);
  });
  // Captured, so that pictures and scripts that could not be loaded are heard too. Firefox gives this event
  // for a module that is hinted at while it is already on its way; an import that fails is an unhandled rejection.
  const isHint = (target) => target instanceof HTMLLinkElement && target.rel === "modulepreload";
  const hear = ({ message, target }) => {
    if (!isHint(target)) complaints.push(`error: ${message ?? target?.outerHTML}`);
  };
  window.addEventListener("error", hear, true);
  const ask = window.fetch;
  window.fetch = async (...args) => {
    const answer = await ask.apply(window, args);
    if (!answer.ok) complaints.push(`fetch: ${answer.status} ${answer.url}`);
    return answer;
  };
})();
