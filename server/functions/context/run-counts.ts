/** What a run did to the records of a model. */
export type ModelCounts = { added: number; updated: number; deleted: number; unchanged: number };
/** By model. */
export type RunCounts = Record<string, ModelCounts>;
