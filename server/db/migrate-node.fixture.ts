// A process that migrates the database of its first argument by the files of its second.

import { migrate } from './migrate.ts';
import { openDb } from './pool.ts';

const [, , url = '', directory = ''] = process.argv;
const db = openDb({ url });
await migrate(db, { directory });
await db.end();
