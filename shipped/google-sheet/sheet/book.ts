/** A spreadsheet and its tabs, without their cells. */
import { type Api, getJson, type Rights } from './api.ts';
import { tabGone } from './faults.ts';
import type { GridJson, Mark } from './grid.ts';

export type Tab = {
  sheetId: number;
  title: string;
  index: number;
  kind: string;
  rows: number;
  columns: number;
  hidden: boolean;
  /** The whole tab is protected, for editing by selected people only. */
  protected: boolean;
};
export type Book = {
  spreadsheetId: string;
  title: string;
  timeZone: string;
  locale: string;
  url: string;
  tabs: Tab[];
};

export const tabFields =
  'properties(sheetId,title,index,sheetType,hidden,gridProperties(rowCount,columnCount))';
export const bookFields = 'spreadsheetId,spreadsheetUrl,properties(title,timeZone,locale)';

export type BookJson = {
  spreadsheetId: string;
  spreadsheetUrl?: string;
  properties?: { title?: string; timeZone?: string; locale?: string };
  sheets?: {
    properties: TabJson;
    data?: GridJson[];
    developerMetadata?: Mark[];
    protectedRanges?: { range?: Record<string, unknown>; warningOnly?: boolean }[];
  }[];
};
type TabJson = {
  sheetId?: number;
  title?: string;
  index?: number;
  sheetType?: string;
  hidden?: boolean;
  gridProperties?: { rowCount?: number; columnCount?: number };
};

/** Title, time zone and tabs of a spreadsheet, in one request. */
export async function readBook(trellis: Api, of: { spreadsheetId: string; rights: Rights }): Promise<Book> {
  const fields = `${bookFields},sheets(${tabFields},protectedRanges(range,warningOnly))`;
  return bookOf(await getJson<BookJson>(trellis, { ...of, params: { fields } }));
}

export function bookOf({ spreadsheetId, spreadsheetUrl, properties = {}, sheets = [] }: BookJson): Book {
  return {
    spreadsheetId,
    title: properties.title ?? '',
    timeZone: properties.timeZone ?? 'Etc/GMT',
    locale: properties.locale ?? '',
    url: spreadsheetUrl ?? `https://docs.google.com/spreadsheets/d/${spreadsheetId}/edit`,
    tabs: sheets.map(({ properties: tab, protectedRanges = [] }) => ({
      sheetId: tab.sheetId ?? 0,
      title: tab.title ?? '',
      index: tab.index ?? 0,
      kind: (tab.sheetType ?? 'GRID').toLowerCase(),
      rows: tab.gridProperties?.rowCount ?? 0,
      columns: tab.gridProperties?.columnCount ?? 0,
      hidden: tab.hidden ?? false,
      protected: protectedRanges.some(
        ({ range = {}, warningOnly }) =>
          !warningOnly && Object.keys(range).every((name) => name === 'sheetId'),
      ),
    })),
  };
}

/** The tab with this `gid`. Throws `source_unavailable`. */
export function tabOf(book: Book, sheetId: number): Tab {
  const tab = book.tabs.find((candidate) => candidate.sheetId === sheetId);
  if (tab === undefined) throw tabGone();
  return tab;
}
