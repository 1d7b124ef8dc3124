/**
 * The harness that stands between a run and the exported function where no other is given: it calls `exec` (`onWebhook`
 * for the kind `webhook`), or the export itself where it is a function, with what may be asked and the input.
 *
 * A harness is CommonJS text that runs in the realm of the customer's code and exports
 * `start({ exported, kind, input, about, service })`, whose result is the run's. `service` is a `Service` of `inside.ts`.
 */
export const plainHarness = `
exports.start = function start({ exported, kind, input, service }) {
  if (typeof exported === 'function') return exported(service, input);
  const name = kind === 'webhook' ? 'onWebhook' : 'exec';
  if (exported === null || typeof exported !== 'object' || typeof exported[name] !== 'function')
    throw new TypeError('The export has no function ' + name + '.');
  return exported[name](service, input);
};
`;
