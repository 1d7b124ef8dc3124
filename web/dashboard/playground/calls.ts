import type { Pair } from './request.ts';

/** A call of the provider's API, as a template. */
export type Suggestion = {
  id: string;
  title: string;
  about: string;
  method: string;
  /** With `{placeholders}`, which are fields of the form. */
  path: string;
  /** Common parameters; those with an empty value are not sent. */
  query?: Pair[];
  /** The description and an example of each placeholder. */
  fields?: Record<string, { about: string; example: string }>;
  body?: unknown;
  /** The same call with the official Node client, after the client itself. */
  client?: string;
};

export type SuggestedApi = {
  calls: Suggestion[];
  /** The package of the official Node client, and the function that creates it. */
  client?: { package: string; make: string; version: string; name: string };
};

/** The suggestions for a provider, loaded on demand; null without any. */
export async function suggestionsFor(provider: string): Promise<SuggestedApi | null> {
  if (provider === 'google-sheet') return (await import('./google-sheet.ts')).googleSheet;
  if (provider === 'google-drive') return (await import('./google-drive.ts')).googleDrive;
  return null;
}
