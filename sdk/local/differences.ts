import type { Json, ModelEffects, Outcome } from './outcome.ts';

/** More are not worth reading. */
const maxDifferences = 20;

/** Where two runs came to different things, a line each. Records are compared by their ids, whatever their order. */
export function differences(recorded: Outcome, now: Outcome): string[] {
  const found: string[] = [];
  compare('error', { recorded: plain(recorded.error), now: plain(now.error), found });
  compare('result', { recorded: recorded.result, now: now.result, found });
  for (const model of new Set([...Object.keys(recorded.records), ...Object.keys(now.records)])) {
    const [before, after] = [byId(recorded.records[model]), byId(now.records[model])];
    for (const id of new Set([...before.keys(), ...after.keys()]))
      compare(`${model} ${id}`, { recorded: before.get(id), now: after.get(id), found });
  }
  compare('checkpoint', { recorded: recorded.checkpoint, now: now.checkpoint, found });
  compare('state', { recorded: recorded.state, now: now.state, found });
  compare('metadata', { recorded: recorded.metadata, now: now.metadata, found });
  const more = found.length - maxDifferences;
  return more > 0 ? [...found.slice(0, maxDifferences), `and ${more} more differences`] : found;
}

function plain(error: Outcome['error']): Json | undefined {
  return error && ({ ...error } as Json);
}

/** What happens to each record, by its id. */
function byId(effects: ModelEffects | undefined): Map<string, Json> {
  const { saved = [], updated = [], deleted = [] } = effects ?? {};
  return new Map<string, Json>([
    ...saved.map((record) => [record.id, { saved: record }] as const),
    ...updated.map((record) => [record.id, { updated: record }] as const),
    ...deleted.map((id) => [id, 'deleted'] as const),
  ]);
}

type Pair = { recorded: Json | undefined; now: Json | undefined; found: string[] };

function compare(path: string, { recorded, now, found }: Pair): void {
  if (isBranch(recorded) && isBranch(now) && Array.isArray(recorded) === Array.isArray(now)) {
    const [before, after] = [recorded, now] as Record<string, Json>[];
    for (const name of new Set([...Object.keys(before!), ...Object.keys(after!)]))
      compare(`${path}.${name}`, { recorded: before![name], now: after![name], found });
  } else if (JSON.stringify(recorded) !== JSON.stringify(now)) {
    found.push(`${path}: recorded ${shown(recorded)}, now ${shown(now)}`);
  }
}

function isBranch(value: Json | undefined): value is Json[] | { [name: string]: Json } {
  return typeof value === 'object' && value !== null;
}

function shown(value: Json | undefined): string {
  const text = value === undefined ? 'nothing' : JSON.stringify(value);
  return text.length > 200 ? `${text.slice(0, 199)}…` : text;
}
