import { useCallback, useEffect, useState } from 'react';
import type { Answer, Body } from '../api/client.ts';
import { call, type Session } from './queries.ts';

/** The calls for the choice of a sheet. All throw `Fault`. */
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

type ResponseState<T> = {
  /** The last response, which is kept while the next request runs. */
  data: T | undefined;
  fault: unknown;
  isWaiting: boolean;
  again: () => void;
};

/** Sends a request when `fetchData` is a new function. The response to an older request is discarded. */
export function useResponse<T>(fetchData: (() => Promise<T>) | undefined): ResponseState<T> {
  const [data, setData] = useState<T>();
  const [fault, setFault] = useState<unknown>();
  const [isWaiting, setWaiting] = useState(fetchData !== undefined);
  const [turn, setTurn] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another turn repeats the request
  useEffect(() => {
    if (fetchData === undefined) return;
    let isCurrent = true;
    setWaiting(true);
    setFault(undefined);
    fetchData()
      .then(
        (answer) => isCurrent && setData(answer),
        (error: unknown) => isCurrent && setFault(error),
      )
      .finally(() => isCurrent && setWaiting(false));
    return () => {
      isCurrent = false;
    };
  }, [fetchData, turn]);
  const again = useCallback(() => setTurn((count) => count + 1), []);
  return { data, fault, isWaiting, again };
}
