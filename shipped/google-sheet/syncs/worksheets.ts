import { createSync } from 'trellis';
import { rightsOf } from '../sheet/api.ts';
import { type Book, readBook } from '../sheet/book.ts';
import { fault } from '../sheet/faults.ts';
import { worksheetModel } from '../sheet/models.ts';
import { readSettings, sheetMetadata } from '../sheet/settings.ts';

export default createSync({
  description:
    'The tabs of the chosen spreadsheets: one record a tab. The variant `base` has the tabs of all spreadsheets; any other ' +
    'variant has the tabs of its spreadsheet.',
  version: '1.0.0',
  frequency: 'every 30 minutes',
  autoStart: false,
  models: { Worksheet: worksheetModel },
  metadata: sheetMetadata,
  exec: async (trellis) => {
    const metadata = await trellis.getMetadata();
    const variants = trellis.variant === 'base' ? Object.keys(metadata?.sheets ?? {}) : [trellis.variant];
    const ids = new Set<string>();
    for (const variant of variants) {
      const chosen = readSettings(metadata, variant);
      if (chosen !== undefined && 'fault' in chosen) throw fault('invalid_settings', chosen.fault);
      if (chosen !== undefined) ids.add(chosen.settings.spreadsheetId);
    }
    if (ids.size === 0)
      return trellis.log(`No sheet is chosen for the variant ${trellis.variant}. Nothing is synced.`);
    const rights = await rightsOf(trellis);
    // All spreadsheets are read before anything is written, so a spreadsheet that cannot be read loses no tab.
    const books: Book[] = [];
    for (const spreadsheetId of ids) books.push(await readBook(trellis, { spreadsheetId, rights }));
    await trellis.trackDeletesStart('Worksheet');
    const records = books.flatMap(({ spreadsheetId, tabs }) =>
      tabs.map((tab) => ({ id: `${spreadsheetId}/${tab.sheetId}`, spreadsheetId, ...tab })),
    );
    await trellis.batchSave(records, 'Worksheet');
    await trellis.trackDeletesEnd('Worksheet');
  },
});
