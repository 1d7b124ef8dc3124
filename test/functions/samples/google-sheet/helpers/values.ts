import { createHash } from 'crypto';
import type { NangoAction, NangoSync, ProxyConfiguration } from 'nango';

/** The rows of a range as objects, by the names in its first row. */
export async function readRows(
  nango: NangoSync | NangoAction,
  { spreadsheetId, range }: { spreadsheetId: string; range: string },
): Promise<Record<string, string>[]> {
  const config: ProxyConfiguration = {
    // https://developers.google.com/workspace/sheets/api/reference/rest/v4/spreadsheets.values/get
    endpoint: `/v4/spreadsheets/${spreadsheetId}/values/${encodeURIComponent(range)}`,
    retries: 3,
  };
  const { data } = await nango.get<{ values?: string[][] }>(config);
  const [names = [], ...rows] = data.values ?? [];
  return rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at] ?? ''])));
}

export function fingerprint(row: Record<string, string>): string {
  return createHash('sha256').update(JSON.stringify(row)).digest('hex').slice(0, 16);
}
