import { type Api, bodyOf } from './api.ts';
import { short } from './report.ts';

type Of = { headers: Record<string, string>; variant: string };
type Stored = Record<string, unknown> & { id: string };

const maxShown = 20;

/** The last cursor of each model of a connection and variant. */
export async function positionsOf(api: Api, { headers, variant }: Of): Promise<Map<string, string>> {
  type Dataset = { model: string; variant: string; last_cursor: string | null };
  const { datasets } = bodyOf<{ datasets: Dataset[] }>(await api.get('/records/datasets', headers));
  return new Map(
    datasets.flatMap((one) =>
      one.variant === variant && one.last_cursor !== null ? [[one.model, one.last_cursor]] : [],
    ),
  );
}

/** What was changed behind these positions, a line each: id, action and payload. */
export async function* changesSince(
  api: Api,
  { headers, variant, before, models }: Of & { before: Map<string, string>; models: string[] },
): AsyncIterable<string> {
  const metadataKey = `_${await api.brand()}_metadata`;
  for (const model of models) {
    const cursor = before.get(model);
    const query = new URLSearchParams({ model, variant, limit: String(maxShown) });
    if (cursor !== undefined) query.set('cursor', cursor);
    const page = bodyOf<{ records: Stored[]; next_cursor: string | null }>(
      await api.get(`/records?${query}`, headers),
    );
    for (const { [metadataKey]: metadata, ...record } of page.records) {
      const { last_action: action } = metadata as { last_action: string };
      yield `  ${model} ${record.id} ${action} ${short(record)}`;
    }
    if (page.next_cursor !== null) yield `  ${model}: and more`;
  }
}
