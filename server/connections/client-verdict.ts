import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Db } from '../db/pool.ts';
import {
  clientFault,
  isOfClient,
  keepsFromRefresh,
  noteMisconfigured,
  noteProven,
} from '../integrations/fault.ts';
import type { Integration } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { ConnectionReader } from './reader.ts';

/**
 * Notes what the token endpoint says of the integration's client when something is connected or imported: that it is
 * refused, or, where there is no `fault`, that it is accepted again. Never throws: what it is noted for goes on, or
 * fails for what it failed of.
 */
export async function noteClientVerdict(
  {
    db,
    reader,
    log,
    now,
  }: { db: Db; reader: Pick<ConnectionReader, 'forgetIntegration'>; log: Logger; now: () => Date },
  { integration, fault }: { integration: Integration; fault: TokenFault | undefined },
): Promise<void> {
  const at = now();
  const isRefused = fault !== undefined && isOfClient(fault);
  const isAccepted =
    fault === undefined && integration.fault !== undefined && keepsFromRefresh(integration.fault);
  if (!isRefused && !isAccepted) return;
  try {
    const isNews = await db.transaction((tx) =>
      isRefused
        ? noteMisconfigured(tx, { integration, fault: clientFault(fault, { at }) })
        : noteProven(tx, { integration, at, proof: 'client' }),
    );
    const { environmentId, key: integrationKey } = integration;
    if (isNews) reader.forgetIntegration({ environmentId, integrationKey });
  } catch (err) {
    log.warn({ err, integration: integration.key }, 'what a provider says of the client was not noted');
  }
}
