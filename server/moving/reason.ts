import { z } from 'zod';
import { AppError } from '../errors.ts';
import { ConnectionDiffersError, HasRecordsError, IntegrationSkippedError } from './datasets.ts';

/** Why something could not be stored, in a word and a sentence; undefined where the run cannot go on. */
export function reasonOf(error: unknown): { reason: string; detail: string } | undefined {
  if (error instanceof z.ZodError)
    return {
      reason: 'invalid',
      detail: error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '),
    };
  if (error instanceof ConnectionDiffersError) return { reason: 'connection_differs', detail: error.message };
  if (error instanceof IntegrationSkippedError)
    return { reason: 'integration_skipped', detail: error.message };
  if (error instanceof HasRecordsError) return { reason: 'dataset_has_records', detail: error.message };
  if (!(error instanceof AppError) || error.code === 'unavailable') return undefined;
  const fields = error.errors?.map(({ path, message }) => `${path.join('.')}: ${message}`) ?? [];
  return { reason: error.code, detail: [error.message, ...fields].join(' ') };
}
