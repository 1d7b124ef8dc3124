import type { Answer, Body } from '../api/client.ts';
import { call, type Session } from './queries.ts';

/** The page's calls about the sheet that is to be chosen. All throw `Fault`. */
type SetUpFacts = Answer<'GET /connect/session/setup'>['data'];
type Spreadsheets = Answer<'POST /connect/session/setup/spreadsheets'>['data'];
export type Book = Answer<'POST /connect/session/setup/describe'>['data'];
export type Preview = Answer<'POST /connect/session/setup/preview'>['data'];
type SheetChoice = Body<'PUT /connect/session/setup'>;

export async function fetchSetUp(session: Session): Promise<SetUpFacts> {
  return (await call(session, 'GET /connect/session/setup')).data;
}

export async function fetchSpreadsheets(session: Session, search: string): Promise<Spreadsheets> {
  const body = search === '' ? {} : { search };
  return (await call(session, 'POST /connect/session/setup/spreadsheets', { body })).data;
}

/** `spreadsheet` is a link or an ID. */
export async function fetchBook(session: Session, spreadsheet: string): Promise<Book> {
  return (await call(session, 'POST /connect/session/setup/describe', { body: { spreadsheet } })).data;
}

export async function fetchPreview(
  session: Session,
  body: Body<'POST /connect/session/setup/preview'>,
): Promise<Preview> {
  return (await call(session, 'POST /connect/session/setup/preview', { body })).data;
}

export async function chooseSheet(session: Session, body: SheetChoice): Promise<void> {
  await call(session, 'PUT /connect/session/setup', { body });
}
