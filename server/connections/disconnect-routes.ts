import { z } from 'zod';
import type { App } from '../http/server.ts';
import { integrationKey } from '../integrations/wire.ts';
import { disconnect, revokeChoices } from './disconnect.ts';
import type { ConnectionHooks } from './hooks.ts';
import type { ConnectionReader } from './reader.ts';
import type { RevocationDeps } from './revocations.ts';
import { connectionId } from './wire.ts';

type Deps = RevocationDeps & {
  reader: ConnectionReader;
  /** What the application's own code does before it. */
  hooks?: ConnectionHooks;
  /** What must happen once a connection is gone. Never awaited. */
  afterDelete: () => void;
};

/** The deletion of a connection, with or without its grant at the provider. */
export function disconnectRoutes(app: App, deps: Deps): void {
  app.delete(
    '/connections/:id',
    {
      config: { access: { by: 'key', scope: 'connections:write' } },
      schema: {
        operationId: 'deleteConnection',
        summary: 'Delete a connection, destroy its data key and revoke its grant',
        description:
          'By default the grant is revoked where no other connection of this installation needs it. `revoke=always` ' +
          'revokes it all the same, once `confirm_others` says how many others lose access; `revoke=never` leaves it.',
        errors: ['unknown_connection', 'revocation_ends_others'],
        params: z.object({ id: connectionId }),
        querystring: z.strictObject({
          provider_config_key: integrationKey,
          revoke: z.enum(revokeChoices).default('auto'),
          confirm_others: z.coerce.number().int().min(0).default(0),
        }),
        response: {
          200: z.object({
            success: z.literal(true),
            revocation: z.enum(['done', 'queued', 'shared', 'failed', 'none']),
          }),
        },
      },
    },
    async ({ params: { id }, query, caller }) => {
      const { revocation } = await disconnect(deps, {
        at: {
          environmentId: caller.environmentId,
          integrationKey: query.provider_config_key,
          connectionId: id,
        },
        caller,
        revoke: query.revoke,
        confirmedOthers: query.confirm_others,
      });
      deps.afterDelete();
      return { success: true as const, revocation };
    },
  );
}
