/** Control routes about how many calls the Sheets API takes. */
import { z } from 'zod';
import { GOOGLE_LIMITS, type Quota } from '../quota.ts';
import { readBody } from './answer.ts';
import type { ControlRoute } from './parts.ts';

const COUNT = z.int().positive().max(1_000_000).optional();
const LIMITS = z.strictObject({
  reads_per_project: COUNT,
  reads_per_account: COUNT,
  writes_per_project: COUNT,
  writes_per_account: COUNT,
  window_s: z.number().positive().max(86_400).optional(),
});

export const QUOTA_ROUTES: Record<string, ControlRoute> = {
  'GET /quota': (_request, { quota }) => quotaToWire(quota),

  // What is not named is as Google has it.
  'POST /quota': (request, { quota }) => {
    const body = readBody(request, LIMITS);
    quota.set({
      readsPerProject: body.reads_per_project ?? GOOGLE_LIMITS.readsPerProject,
      readsPerAccount: body.reads_per_account ?? GOOGLE_LIMITS.readsPerAccount,
      writesPerProject: body.writes_per_project ?? GOOGLE_LIMITS.writesPerProject,
      writesPerAccount: body.writes_per_account ?? GOOGLE_LIMITS.writesPerAccount,
      windowS: body.window_s ?? GOOGLE_LIMITS.windowS,
    });
    return quotaToWire(quota);
  },

  'DELETE /quota': (_request, { quota }) => {
    quota.set(undefined);
    return quotaToWire(quota);
  },
};

function quotaToWire({ limits, refused }: Quota) {
  return {
    limits:
      limits === undefined
        ? null
        : {
            reads_per_project: limits.readsPerProject,
            reads_per_account: limits.readsPerAccount,
            writes_per_project: limits.writesPerProject,
            writes_per_account: limits.writesPerAccount,
            window_s: limits.windowS,
          },
    refused,
  };
}
