import { isDeepStrictEqual } from 'node:util';
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { findIntegration, type Integration, type IntegrationReading } from '../integrations/store.ts';

/**
 * Throws `unknown_provider_config` where the integration is not the one any more that credentials were tried with:
 * another took its ID, or its settings were changed, by which they could go to another provider than they were meant
 * for.
 *
 * To be called in the transaction that gives it the connection, after that is written: who changes it from then on
 * waits for the end of the transaction (`getIntegrationForUpdate`), and finds a connection there.
 */
export async function assertIntegrationUnchanged(
  tx: Queryable,
  { tried, reading }: { tried: Integration; reading: IntegrationReading },
): Promise<void> {
  const { environmentId, key } = tried;
  const found = await findIntegration(tx, { environmentId, key, ...reading });
  const isSame = found?.id === tried.id && found.isTest === tried.isTest;
  if (isSame && isDeepStrictEqual(found.integrationConfig, tried.integrationConfig)) return;
  const message = `The integration "${key}" was changed while the credentials were tried. Try again.`;
  throw new AppError('unknown_provider_config', message);
}
