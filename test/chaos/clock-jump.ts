/**
 * Loaded into a node before anything of its own (`NODE_OPTIONS=--import=...`): at each SIGUSR2 the machine's clock, as
 * JavaScript tells it, goes a day ahead, or back.
 */
const dayMs = 86_400_000;
const { Date: OwnDate } = globalThis;
const ownNow = OwnDate.now;
let aheadMs = 0;

OwnDate.now = () => ownNow() + aheadMs;
// The dates it makes are those of everybody else.
globalThis.Date = new Proxy(OwnDate, {
  construct: (target, given, made) =>
    Reflect.construct(target, given.length === 0 ? [OwnDate.now()] : given, made),
  apply: () => new OwnDate(OwnDate.now()).toString(),
});
process.on('SIGUSR2', () => {
  aheadMs = aheadMs === 0 ? dayMs : 0;
});
