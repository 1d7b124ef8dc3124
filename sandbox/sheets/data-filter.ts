/**
 * DataFilters and developer metadata lookups: the ranges and the metadata that a filter selects.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { invalidArgument } from './errors.ts';
import {
  clip,
  intersects,
  type Rectangle,
  type RequestedRange,
  resolveA1,
  resolveGridRange,
} from './ranges.ts';
import { getSheet, type Spreadsheet } from './spreadsheet.ts';

type DeveloperMetadata = Spreadsheet['developerMetadata'][number];

/** The ranges a filter selects: one for a range, any number for a lookup. */
export function rangesOfFilter(
  spreadsheet: Spreadsheet,
  filter: sheets_v4.Schema$DataFilter,
): RequestedRange[] {
  if (filter.a1Range != null) return [resolveA1(spreadsheet, filter.a1Range)];
  if (filter.gridRange) return [resolveGridRange(spreadsheet, filter.gridRange)];
  return findMetadata(spreadsheet, filter).flatMap((metadata) => {
    if (metadata.location?.spreadsheet) return spreadsheet.sheets.map((sheet) => ({ sheet, area: {} }));
    return [areaOf(spreadsheet, metadata.location ?? {})];
  });
}

/** The metadata that a filter selects. A filter by range selects the metadata inside the range. */
export function findMetadata(
  spreadsheet: Spreadsheet,
  filter: sheets_v4.Schema$DataFilter,
): DeveloperMetadata[] {
  const { developerMetadataLookup: lookup } = filter;
  if (lookup)
    return spreadsheet.developerMetadata.filter((metadata) => isMatch(spreadsheet, metadata, lookup));
  if (filter.a1Range == null && !filter.gridRange) throw invalidArgument('dataFilter must specify a filter.');
  const wanted = rangesOfFilter(spreadsheet, filter).map((asked) => ({
    sheet: asked.sheet,
    rectangle: clip(asked),
  }));
  return spreadsheet.developerMetadata.filter(({ location }) => {
    if (!location || location.spreadsheet || location.sheetId != null) return false;
    const own = areaOf(spreadsheet, location);
    return wanted.some(({ sheet, rectangle }) => sheet === own.sheet && intersects(rectangle, clip(own)));
  });
}

function isMatch(
  spreadsheet: Spreadsheet,
  metadata: DeveloperMetadata,
  lookup: sheets_v4.Schema$DeveloperMetadataLookup,
): boolean {
  if (lookup.metadataId != null && metadata.metadataId !== lookup.metadataId) return false;
  if (lookup.metadataKey != null && metadata.metadataKey !== lookup.metadataKey) return false;
  if (lookup.metadataValue != null && metadata.metadataValue !== lookup.metadataValue) return false;
  if (lookup.visibility && metadata.visibility !== lookup.visibility) return false;
  if (lookup.locationType && metadata.location?.locationType !== lookup.locationType) return false;
  if (!lookup.metadataLocation) return true;
  const [asked, own] = [lookup.metadataLocation, metadata.location ?? {}];
  if (asked.spreadsheet)
    return own.spreadsheet === true || lookup.locationMatchingStrategy === 'INTERSECTING_LOCATION';
  if (own.spreadsheet) return false;
  const [a, b] = [areaOf(spreadsheet, asked), areaOf(spreadsheet, own)];
  if (a.sheet !== b.sheet) return false;
  const [wanted, there] = [clip(a), clip(b)];
  return lookup.locationMatchingStrategy === 'INTERSECTING_LOCATION'
    ? intersects(wanted, there)
    : isSame(wanted, there);
}

function isSame(a: Rectangle, b: Rectangle): boolean {
  return (
    a.startRow === b.startRow &&
    a.endRow === b.endRow &&
    a.startColumn === b.startColumn &&
    a.endColumn === b.endColumn
  );
}

function areaOf(
  spreadsheet: Spreadsheet,
  location: sheets_v4.Schema$DeveloperMetadataLocation,
): RequestedRange {
  const { dimensionRange } = location;
  const sheet = getSheet(spreadsheet, dimensionRange?.sheetId ?? location.sheetId);
  if (!dimensionRange) return { sheet, area: {} };
  const [start, end] = [dimensionRange.startIndex ?? 0, dimensionRange.endIndex ?? undefined];
  if (dimensionRange.dimension === 'COLUMNS') {
    return { sheet, area: { startColumn: start, ...(end !== undefined && { endColumn: end }) } };
  }
  return { sheet, area: { startRow: start, ...(end !== undefined && { endRow: end }) } };
}
