/**
 * What existing functions import from `nango` and `@nangohq/runner-sdk`, for the check of types only. Their records may have
 * another type than the model's.
 */
import type { z } from 'zod';
import type { Context, SyncContext } from './context.ts';
import type { Models, Of, Shape, SyncDefinition } from './definitions.ts';

export { createAction, createOnEvent } from './definitions.ts';
export type * from './index.ts';
export type { LooseSyncContext as NangoSync, LooseSyncContext as SyncContext };

export declare const ActionError: Context['ActionError'];

export declare function createSync<
  M extends Models,
  Metadata extends Shape = undefined,
  Checkpoint extends Shape = undefined,
>(
  definition: LooseSyncDefinition<M, Metadata, Checkpoint>,
): LooseSyncDefinition<M, Metadata, Checkpoint> & { type: 'sync' };

type LooseSyncDefinition<M extends Models, Metadata extends Shape, Checkpoint extends Shape> = SyncDefinition<
  M,
  Metadata,
  Checkpoint,
  LooseSyncContext<M, Of<Metadata>, Of<Checkpoint>>
>;

interface LooseSyncContext<
  M extends Models = Models,
  Metadata = Record<string, unknown>,
  Checkpoint = Record<string, unknown>,
> extends Omit<SyncContext<M, Metadata, Checkpoint>, 'batchSave' | 'batchUpdate' | 'batchDelete'> {
  batchSave<R extends { id: string } = RecordOf<M>>(records: R[], model: keyof M & string): Promise<true>;
  batchUpdate<R extends { id: string } = RecordOf<M>>(
    records: (Pick<R, 'id'> & Partial<R>)[],
    model: keyof M & string,
  ): Promise<true>;
  batchDelete<R extends { id: string } = RecordOf<M>>(
    records: (Pick<R, 'id'> & Partial<R>)[],
    model: keyof M & string,
  ): Promise<true>;
}

type RecordOf<M extends Models> = z.infer<M[keyof M]> & { id: string };
