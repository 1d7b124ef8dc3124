/** What a local run came to, in lines to be read. */
import type { ModelEffects } from '../local/outcome.ts';
import type { LocalEnd } from '../local/run-locally.ts';

const maxShown = 5;
const maxCharacters = 500;

export function report({ outcome, misfits, notes, places }: LocalEnd): string[] {
  return [
    ...Object.entries(outcome.records).flatMap(([model, effects]) => ofModel(model, effects)),
    ...misfits.flatMap(([model, all]) => [
      `${model}: ${all.length} record(s) do not fit the model`,
      ...limited(all.map(({ id, path, message }) => `  ${id}: ${path || 'the record'}: ${message}`)),
    ]),
    ...notes.map((note) => `${note}.`),
    ...('result' in outcome ? [`Output: ${JSON.stringify(outcome.result, null, 2)}`] : []),
    ...(outcome.error === undefined ? [] : failureOf(outcome.error, places)),
  ];
}

function ofModel(model: string, { saved, updated, deleted }: ModelEffects): string[] {
  return [
    `${model}: ${saved.length} would be saved, ${updated.length} updated, ${deleted.length} deleted`,
    ...limited(saved.map((record) => `  save ${short(record)}`)),
    ...limited(updated.map((record) => `  update ${short(record)}`)),
    ...limited(deleted.map((id) => `  delete ${id}`)),
  ];
}

function failureOf(
  { code, message, payload }: NonNullable<LocalEnd['outcome']['error']>,
  places: readonly string[],
): string[] {
  const [first] = places;
  return [
    `${first ? `${first}: ` : ''}${message}${code === undefined ? '' : ` (${code})`}`,
    ...places.slice(1).map((place) => `  at ${place}`),
    ...(payload === undefined ? [] : [`  ${short(payload)}`]),
  ];
}

function limited(lines: string[]): string[] {
  if (lines.length <= maxShown) return lines;
  return [...lines.slice(0, maxShown), `  and ${lines.length - maxShown} more`];
}

/** JSON that fits a few lines of a terminal. */
export function short(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > maxCharacters ? `${text.slice(0, maxCharacters - 1)}…` : text;
}
