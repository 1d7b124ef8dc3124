/**
 * The definitions of functions: `createSync`, `createAction` and `createOnEvent` accept a definition and return it with its kind,
 * for the default export of a file. `context.ts` has the context of `exec`.
 */
import type { z } from 'zod';
import type { ActionContext, EventContext, Loose, SyncContext } from './context.ts';

export type Models = Record<string, z.ZodObject>;
/** The schema of a connection's metadata, or of a checkpoint; `z.void()` is none. */
export type Shape = z.ZodObject | z.ZodVoid | undefined;
export type Of<S extends Shape> = S extends z.ZodObject ? z.infer<S> : Record<string, Loose>;

type Common<Metadata extends Shape, Checkpoint extends Shape> = {
  /** What it does, for users of the dashboard. */
  description: string;
  /** The author's version, such as `1.2.0`. The service numbers versions separately. */
  version?: string;
  /** It does not start for a connection that lacks one of these scopes. */
  scopes?: string[];
  metadata?: Metadata;
  checkpoint?: Checkpoint;
};

export type SyncDefinition<
  M extends Models = Models,
  Metadata extends Shape = Shape,
  Checkpoint extends Shape = Shape,
  Context = SyncContext<M, Of<Metadata>, Of<Checkpoint>>,
> = Common<Metadata, Checkpoint> & {
  /** `every 30s`, `every 5 minutes`, `every half hour`, `every hour`, `every day`, `every week`. The minimum is 30 s. */
  frequency: string;
  /** The schemas of its records by model, each with a field `id`. */
  models: M;
  /** Whether it starts automatically for new connections; true by default. */
  autoStart?: boolean;
  /** The types of the provider's webhooks for `onWebhook`; `*` for all. */
  webhookSubscriptions?: string[];
  /** Runs from the last checkpoint on, and again after the loss of its process: saves must be repeatable. */
  exec(context: Context): Promise<void>;
  onWebhook?(context: Context, payload: unknown): Promise<void>;
  /** @deprecated Ignored. */
  endpoints?: unknown;
  /** @deprecated Ignored: runs continue from checkpoints. */
  syncType?: 'full' | 'incremental';
  /** @deprecated Call `trackDeletesStart` and `trackDeletesEnd`. True calls both around `exec`, for each model. */
  trackDeletes?: boolean;
};

export type ActionDefinition<
  Input extends z.ZodType = z.ZodType,
  Output extends z.ZodType = z.ZodType,
  Metadata extends Shape = Shape,
  Checkpoint extends Shape = Shape,
> = Common<Metadata, Checkpoint> & {
  /** An invalid input is refused. */
  input: Input;
  /** An invalid output is an error of the function. */
  output: Output;
  /** It changes nothing at the provider. Callers without the right to write may call only such actions. */
  readOnly?: boolean;
  /** It is never run twice for one call, even if the caller requests retries. */
  once?: boolean;
  exec(
    context: ActionContext<Of<Metadata>, Of<Checkpoint>>,
    input: z.infer<Input>,
  ): Promise<z.input<Output>> | z.input<Output>;
  /** @deprecated Ignored. */
  endpoint?: unknown;
};

/** When an event function runs. */
export type Occasion = 'post-connection-creation' | 'pre-connection-deletion' | 'validate-connection';

export type OnEventDefinition<Metadata extends Shape = Shape, Checkpoint extends Shape = Shape> = Common<
  Metadata,
  Checkpoint
> & {
  event: Occasion;
  /** An error refuses the connection on `validate-connection`, and is logged for other events. */
  exec(context: EventContext<Of<Metadata>, Of<Checkpoint>>): Promise<void>;
};

/** A sync: saves the records of its models for each connection, on a schedule. */
export function createSync<
  M extends Models,
  Metadata extends Shape = undefined,
  Checkpoint extends Shape = undefined,
>(
  definition: SyncDefinition<M, Metadata, Checkpoint>,
): SyncDefinition<M, Metadata, Checkpoint> & { type: 'sync' } {
  return { ...definition, type: 'sync' };
}

/** An action: called with an input, returns an output. */
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

/** An event function: runs at events of a connection. */
export function createOnEvent<Metadata extends Shape = undefined, Checkpoint extends Shape = undefined>(
  definition: OnEventDefinition<Metadata, Checkpoint>,
): OnEventDefinition<Metadata, Checkpoint> & { type: 'onEvent' } {
  return { ...definition, type: 'onEvent' };
}

export type Definition =
  | (SyncDefinition & { type: 'sync' })
  | (ActionDefinition & { type: 'action' })
  | (OnEventDefinition & { type: 'onEvent' });
