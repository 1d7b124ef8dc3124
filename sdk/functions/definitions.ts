/**
 * How a function is written: `createSync`, `createAction` and `createOnEvent` take what a function is and does, and give
 * it back with its kind, to be the default export of its file.
 *
 * Owns the shape of a definition. What `exec` is given is in `context.ts`.
 */
import type { z } from 'zod';
import type { ActionContext, EventContext, SyncContext } from './context.ts';

export type Models = Record<string, z.ZodObject>;
/** What a connection's metadata, or the checkpoint of a sync, looks like. */
export type Shape = z.ZodObject | undefined;
export type Of<S extends Shape> = S extends z.ZodObject ? z.infer<S> : Record<string, unknown>;

type Common<Metadata extends Shape, Checkpoint extends Shape> = {
  /** What it does, for readers of the dashboard. */
  description: string;
  /** Of the author, such as `1.2.0`; the service numbers versions by itself. */
  version?: string;
  /** Without these granted, it does not start for a connection. */
  scopes?: string[];
  metadata?: Metadata;
  checkpoint?: Checkpoint;
};

export type SyncDefinition<
  M extends Models = Models,
  Metadata extends Shape = Shape,
  Checkpoint extends Shape = Shape,
> = Common<Metadata, Checkpoint> & {
  /** `every 30s`, `every 5 minutes`, `every half hour`, `every hour`, `every day`, `every week`; 30 s at least. */
  frequency: string;
  /** What it saves, by the names of the models; each has a field `id`. */
  models: M;
  /** Whether it starts by itself for new connections; true unless said otherwise. */
  autoStart?: boolean;
  /** Kinds of the provider's webhooks that `onWebhook` gets; `*` for all. */
  webhookSubscriptions?: string[];
  /** Runs from the last checkpoint on, and again where its process went away: what it saves must bear repetition. */
  exec(context: SyncContext<M, Of<Metadata>, Of<Checkpoint>>): Promise<void>;
  onWebhook?(context: SyncContext<M, Of<Metadata>, Of<Checkpoint>>, payload: unknown): Promise<void>;
  /** @deprecated Counts for nothing. */
  endpoints?: unknown;
  /** @deprecated Counts for nothing: checkpoints say where a run goes on. */
  syncType?: 'full' | 'incremental';
  /** @deprecated Call `trackDeletesStart` and `trackDeletesEnd`. True does both around `exec`, for each model. */
  trackDeletes?: boolean;
};

export type ActionDefinition<
  Input extends z.ZodType = z.ZodType,
  Output extends z.ZodType = z.ZodType,
  Metadata extends Shape = Shape,
  Checkpoint extends Shape = Shape,
> = Common<Metadata, Checkpoint> & {
  /** What comes in is refused where it does not fit. */
  input: Input;
  /** What goes out, too: an answer that does not fit is an error of the function. */
  output: Output;
  /** It changes nothing at the provider. Only such are tools for callers that may not write. */
  readOnly?: boolean;
  /** It is not run a second time for one call, however many retries its caller asks for. */
  once?: boolean;
  exec(
    context: ActionContext<Of<Metadata>, Of<Checkpoint>>,
    input: z.infer<Input>,
  ): Promise<z.input<Output>> | z.input<Output>;
  /** @deprecated Counts for nothing. */
  endpoint?: unknown;
};

/** When an event function runs. */
export type Occasion = 'post-connection-creation' | 'pre-connection-deletion' | 'validate-connection';

export type OnEventDefinition<Metadata extends Shape = Shape, Checkpoint extends Shape = Shape> = Common<
  Metadata,
  Checkpoint
> & {
  event: Occasion;
  /** What it throws refuses the connection on `validate-connection`, and is logged otherwise. */
  exec(context: EventContext<Of<Metadata>, Of<Checkpoint>>): Promise<void>;
};

/** A sync: fills the records of its models, for each connection, again and again. */
export function createSync<
  M extends Models,
  Metadata extends Shape = undefined,
  Checkpoint extends Shape = undefined,
>(
  definition: SyncDefinition<M, Metadata, Checkpoint>,
): SyncDefinition<M, Metadata, Checkpoint> & { type: 'sync' } {
  return { ...definition, type: 'sync' };
}

/** An action: is called with an input and answers an output. */
export function createAction<
  Input extends z.ZodType,
  Output extends z.ZodType,
  Metadata extends Shape = undefined,
  Checkpoint extends Shape = undefined,
>(
  definition: ActionDefinition<Input, Output, Metadata, Checkpoint>,
): ActionDefinition<Input, Output, Metadata, Checkpoint> & { type: 'action' } {
  return { ...definition, type: 'action' };
}

/** An event function: runs when something happens to a connection. */
export function createOnEvent<Metadata extends Shape = undefined, Checkpoint extends Shape = undefined>(
  definition: OnEventDefinition<Metadata, Checkpoint>,
): OnEventDefinition<Metadata, Checkpoint> & { type: 'onEvent' } {
  return { ...definition, type: 'onEvent' };
}

export type Definition =
  | (SyncDefinition & { type: 'sync' })
  | (ActionDefinition & { type: 'action' })
  | (OnEventDefinition & { type: 'onEvent' });
