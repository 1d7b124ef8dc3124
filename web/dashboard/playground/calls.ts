import type { Pair } from './request.ts';

/** A call that a provider's API takes, to start from. */
export type Suggestion = {
  id: string;
  title: string;
  about: string;
  method: string;
  /** With `{placeholders}`, which become fields. */
  path: string;
  /** Parameters that are often wanted; those with an empty value are not sent. */
  query?: Pair[];
  /** What a placeholder stands for, and an example of it. */
  fields?: Record<string, { about: string; example: string }>;
  body?: unknown;
  /** The same call in the official Node client, behind the client itself. */
  client?: string;
};

export type SuggestedApi = {
  calls: Suggestion[];
  /** The package of the official Node client, and the function of it that makes one. */
  client?: { package: string; make: string; version: string; name: string };
};

/** What is suggested for a provider; loaded when it is wanted. Undefined: nothing. */
export async function suggestionsFor(provider: string): Promise<SuggestedApi | null> {
  if (provider === 'google-sheet') return (await import('./google-sheet.ts')).googleSheet;
  if (provider === 'google-drive') return (await import('./google-drive.ts')).googleDrive;
  return null;
}
