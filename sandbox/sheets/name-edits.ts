/**
 * Edits of named ranges and developer metadata.
 *
 * Each takes a forked spreadsheet and a checked request, changes the fork, and returns its reply if it has one.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { parseArea } from './a1.ts';
import { findMetadata } from './data-filter.ts';
import { invalidArgument } from './errors.ts';
import { mergeMasked, requireMask } from './field-mask.ts';
import { clip, resolveGridRange } from './ranges.ts';
import { getSheet, newNumericId, type Spreadsheet } from './spreadsheet.ts';

export function addNamedRange(
  draft: Spreadsheet,
  { namedRange }: sheets_v4.Schema$AddNamedRangeRequest,
): object {
  const name = namedRange?.name ?? '';
  const isName = /^[A-Za-z_][A-Za-z0-9_]{0,249}$/.test(name) && parseArea(name) === undefined;
  if (!isName || /^(true|false)$/i.test(name)) throw invalidArgument(`Invalid name: ${name}`);
  if (draft.namedRanges.some((one) => one.name?.toLowerCase() === name.toLowerCase())) {
    throw invalidArgument(`A named range with the name "${name}" already exists.`);
  }
  const range = checkedRange(draft, namedRange?.range ?? {});
  const namedRangeId = namedRange?.namedRangeId ?? String(newNumericId(new Set()));
  if (draft.namedRanges.some((one) => one.namedRangeId === namedRangeId)) {
    throw invalidArgument(`A named range with the id "${namedRangeId}" already exists.`);
  }
  const added = { namedRangeId, name, range };
  draft.namedRanges.push(added);
  return { addNamedRange: { namedRange: added } };
}

/** A GridRange inside its grid; ends beyond the grid are clipped, open ends stay open. */
export function checkedRange(
  draft: Spreadsheet,
  range: sheets_v4.Schema$GridRange,
): sheets_v4.Schema$GridRange {
  const asked = resolveGridRange(draft, range);
  const { endRow, endColumn } = clip(asked);
  return {
    ...range,
    sheetId: asked.sheet.properties.sheetId,
    ...(range.endRowIndex != null && { endRowIndex: endRow }),
    ...(range.endColumnIndex != null && { endColumnIndex: endColumn }),
  };
}

export function deleteNamedRange(
  draft: Spreadsheet,
  request: sheets_v4.Schema$DeleteNamedRangeRequest,
): void {
  const kept = draft.namedRanges.filter((one) => one.namedRangeId !== request.namedRangeId);
  if (kept.length === draft.namedRanges.length) {
    throw invalidArgument(`No named range with id: ${request.namedRangeId ?? ''}`);
  }
  draft.namedRanges = kept;
}

type DeveloperMetadata = Spreadsheet['developerMetadata'][number];

/** The entry for `given`, with its location completed and validated, and a new id if it has none. */
export function newDeveloperMetadata(
  draft: Spreadsheet,
  given: sheets_v4.Schema$DeveloperMetadata,
): DeveloperMetadata {
  const taken = new Set(draft.developerMetadata.map((one) => one.metadataId));
  if (given.metadataId != null && taken.has(given.metadataId)) {
    throw invalidArgument(`Developer metadata with id ${given.metadataId} already exists.`);
  }
  if (!given.metadataKey) throw invalidArgument('developerMetadata.metadataKey must be set.');
  if (!given.visibility || given.visibility === 'DEVELOPER_METADATA_VISIBILITY_UNSPECIFIED') {
    throw invalidArgument('developerMetadata.visibility must be set.');
  }
  return {
    metadataId: given.metadataId ?? newNumericId(taken),
    metadataKey: given.metadataKey,
    ...(given.metadataValue != null && { metadataValue: given.metadataValue }),
    location: checkedLocation(draft, given.location ?? {}),
    visibility: given.visibility,
  };
}

function checkedLocation(
  draft: Spreadsheet,
  location: sheets_v4.Schema$DeveloperMetadataLocation,
): sheets_v4.Schema$DeveloperMetadataLocation {
  if (location.spreadsheet) return { locationType: 'SPREADSHEET', spreadsheet: true };
  const { dimensionRange: range } = location;
  if (!range) {
    if (location.sheetId == null) throw invalidArgument('developerMetadata.location must be set.');
    return { locationType: 'SHEET', sheetId: getSheet(draft, location.sheetId).properties.sheetId };
  }
  const sheet = getSheet(draft, range.sheetId);
  const start = range.startIndex ?? 0;
  if (range.dimension !== 'ROWS' && range.dimension !== 'COLUMNS')
    throw invalidArgument('No dimension specified.');
  if (range.endIndex !== start + 1) {
    throw invalidArgument('Developer metadata can only be attached to a single row or column.');
  }
  const isRow = range.dimension === 'ROWS';
  clip({
    sheet,
    area: isRow ? { startRow: start, endRow: start + 1 } : { startColumn: start, endColumn: start + 1 },
  });
  return {
    locationType: isRow ? 'ROW' : 'COLUMN',
    dimensionRange: { ...range, sheetId: sheet.properties.sheetId, startIndex: start },
  };
}

export function createDeveloperMetadata(
  draft: Spreadsheet,
  request: sheets_v4.Schema$CreateDeveloperMetadataRequest,
): object {
  const developerMetadata = newDeveloperMetadata(draft, request.developerMetadata ?? {});
  draft.developerMetadata = [...draft.developerMetadata, developerMetadata];
  return { createDeveloperMetadata: { developerMetadata } };
}

export function updateDeveloperMetadata(
  draft: Spreadsheet,
  request: sheets_v4.Schema$UpdateDeveloperMetadataRequest,
): object {
  const mask = requireMask(request.fields, 'DeveloperMetadata');
  const found = findAll(draft, request.dataFilters ?? []);
  const updated: DeveloperMetadata[] = [];
  draft.developerMetadata = draft.developerMetadata.map((one) => {
    if (!found.has(one)) return one;
    const merged =
      mergeMasked<sheets_v4.Schema$DeveloperMetadata>(one, request.developerMetadata ?? {}, mask) ?? {};
    const location = checkedLocation(draft, merged.location ?? {});
    updated.push({ ...merged, location, metadataId: one.metadataId });
    return updated.at(-1) ?? one;
  });
  return { updateDeveloperMetadata: updated.length === 0 ? {} : { developerMetadata: updated } };
}

export function deleteDeveloperMetadata(
  draft: Spreadsheet,
  request: sheets_v4.Schema$DeleteDeveloperMetadataRequest,
): object {
  const found = findAll(draft, [request.dataFilter ?? {}]);
  draft.developerMetadata = draft.developerMetadata.filter((one) => !found.has(one));
  return { deleteDeveloperMetadata: found.size === 0 ? {} : { deletedDeveloperMetadata: [...found] } };
}

function findAll(
  draft: Spreadsheet,
  filters: readonly sheets_v4.Schema$DataFilter[],
): Set<DeveloperMetadata> {
  return new Set(filters.flatMap((filter) => findMetadata(draft, filter)));
}
