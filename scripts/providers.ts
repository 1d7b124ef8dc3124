/**
 * Writes the files generated from the provider definitions: providers/parsed.jsonl (read at start) the list in
 * docs/reference/providers.md, and the table in docs/guides/webhooks.md. Run it after each change of a definition: `node scripts/providers.ts`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { authModes } from '../server/auth-modes/modes.ts';
import { loadCatalog } from '../server/providers/catalog.ts';
import { parsedText } from '../server/providers/source.ts';
import { withTable, withWebhooks } from '../test/providers/table.ts';

const root = join(import.meta.dirname, '..');
const directory = join(root, 'providers');
const catalog = loadCatalog(directory, authModes);
writeFileSync(join(directory, 'parsed.jsonl'), parsedText(directory));
const page = join(root, 'docs/reference/providers.md');
writeFileSync(page, withTable(readFileSync(page, 'utf8'), catalog));
const guide = join(root, 'docs/guides/webhooks.md');
writeFileSync(guide, withWebhooks(readFileSync(guide, 'utf8'), catalog));
