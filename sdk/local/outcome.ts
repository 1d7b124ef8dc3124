/** What a run that writes nothing came to. All of it is JSON. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };
export type StoredRecord = JsonObject & { id: string };

export type ModelEffects = {
  /** As they would stand after the run, the last of each id. */
  saved: StoredRecord[];
  /** Parts that would be laid over what is stored. */
  updated: StoredRecord[];
  deleted: string[];
};

export type Outcome = {
  /** Of an action. */
  result?: Json;
  /** What it threw. */
  error?: { code?: string; message: string; payload?: Json };
  /** By model; those that were not written to are left out. */
  records: Record<string, ModelEffects>;
  /** Null where there would be none. */
  checkpoint: Json;
  metadata: JsonObject;
  /** What it wrote down for its next run; absent where it did not. */
  state?: string;
};

/** As what is given would arrive at the service: dates are texts, what has no JSON is left out. */
export function asJson(value: unknown): Json {
  const text = JSON.stringify(value);
  return text === undefined ? null : (JSON.parse(text) as Json);
}

/** An ask that is not answered, as a function gets it. */
export function refusal(code: string, message: string): Error & { code: string } {
  return Object.assign(new Error(message), { code });
}
