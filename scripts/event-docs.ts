/** Writes the types of events into docs/reference/event-types.md. Run it after each change of one: `node scripts/event-docs.ts`. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeEventTypes, withEventTypes } from '../test/support/event-docs.ts';

const file = join(import.meta.dirname, '../docs/reference/event-types.md');
writeFileSync(file, withEventTypes(readFileSync(file, 'utf8'), describeEventTypes()));
