/** Writes the types of events into docs/events.md. Run it after each change of one: `node scripts/event-docs.ts`. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeEventTypes, withEventTypes } from '../test/support/event-docs.ts';

const file = join(import.meta.dirname, '../docs/events.md');
writeFileSync(file, withEventTypes(readFileSync(file, 'utf8'), describeEventTypes()));
