/** The outcome of a local run, as JSON. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };
export type StoredRecord = JsonObject & { id: string };

export type ModelEffects = {
  /** The records after the run, one for each ID. */
  saved: StoredRecord[];
  /** The fields to merge into stored records. */
  updated: StoredRecord[];
  deleted: string[];
};

export type Outcome = {
  /** The output of an action. */
  result?: Json;
  /** The error that the function threw. */
  error?: { code?: string; message: string; payload?: Json };
  /** The effects by model, without the models that were not changed. */
  records: Record<string, ModelEffects>;
  /** Null if there is none. */
  checkpoint: Json;
  metadata: JsonObject;
  /** The state that the function saved for its next run; absent if it saved none. */
  state?: string;
};

/** Converts a value as its transfer to the service does: dates become strings, values without a JSON form are omitted. */
export function asJson(value: unknown): Json {
  const text = JSON.stringify(value);
  return text === undefined ? null : (JSON.parse(text) as Json);
}

/** An error with a code, as a function gets it from the service. `errors` names invalid fields. */
export function serviceError(
  code: string,
  message: string,
  errors?: { message: string; path: string[] }[],
): Error & { code: string } {
  return Object.assign(new Error(message), { code, ...(errors && { errors }) });
}
