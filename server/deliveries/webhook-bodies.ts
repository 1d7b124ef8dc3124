/**
 * The content of a provider's webhook, stored sealed beside its event until the event is removed: the table `webhook_body`.
 *
 * Does not own: which webhooks are accepted and forwarded (`webhooks/`), or how they are sent (`send.ts`).
 */
import type { IncomingHttpHeaders } from 'node:http';
import { first, type Queryable, type Tx } from '../db/pool.ts';
import { normalizedHeaderName } from '../providers/credential-header.ts';
import type { DataKey, Vault } from '../vault.ts';

export type WebhookBody = {
  payload: unknown;
  /** The provider's headers, which go along in the form for official clients. */
  headers: Readonly<Record<string, string>>;
};

const context = 'webhook';

/** Runs in the transaction of the event. `key` is the connection's, or the environment's if there is no connection. */
export async function keepWebhookBody(
  tx: Tx,
  of: {
    body: WebhookBody;
    key: DataKey;
    eventId: string;
    environmentId: number;
    integrationId: number;
    connectionId: number | null;
    at: Date;
  },
): Promise<void> {
  await tx.query(
    `insert into webhook_body (event_id, environment_id, integration_id, connection_id, sealed, received_at)
     values ($1, $2, $3, $4, $5, $6)`,
    [
      of.eventId,
      of.environmentId,
      of.integrationId,
      of.connectionId,
      of.key.sealJson(of.body, context),
      of.at,
    ],
  );
}

/** Undefined if it cannot be decrypted any more because its connection was deleted. */
export async function findWebhookBody(
  db: Queryable,
  { eventId, environmentId, vault }: { eventId: string; environmentId: number; vault: Vault },
): Promise<WebhookBody | undefined> {
  const row = first(
    await db.query<{ sealed: Buffer; wrapped: Buffer | null }>(
      `select webhook_body.sealed, data_key.wrapped
       from webhook_body
       join environment on environment.id = webhook_body.environment_id
       left join connection on connection.id = webhook_body.connection_id
       left join data_key
         on data_key.id = case
           when webhook_body.connection_id is null then environment.data_key
           else connection.data_key
         end
       where webhook_body.event_id = $1 and webhook_body.environment_id = $2`,
      [eventId, environmentId],
    ),
  );
  if (row === undefined || row.wrapped === null) return undefined;
  return vault.unwrap(row.wrapped).openJson(row.sealed, context) as WebhookBody;
}

// Headers of the two HTTP connections, headers that identify the sender, and the headers of our signatures.
const neverForwarded =
  /^(host|authorization|connection|cookie2?|referer|user-agent|keep-alive|te|trailer|transfer-encoding|upgrade|expect|max-forwards|via|forwarded|origin|accept-?.*|content-.*|sec-.*|proxy-.*|webhook-.*)$/;
/**
 * Headers with which a proxy or a framework replaces the method, the path, the host, the sender or the user of a request.
 * Every caller that has the address of a webhook could send them.
 */
const overriding = [
  /^(x-http-method(-override)?|x-method-override|x-(ms-)?(original|rewrite|override)-.*|x-(middleware|invoke)-.*)$/,
  /^(x-forwarded(-.*)?|x-(http-)?host(-override)?|x-(url-)?scheme|front-end-https|x-accel-.*|x-sendfile)$/,
  /^((x-)?real-ip|(.*-)?(client|connecting|originating)-?ip|cf-.*|fastly-.*|x-vercel-(forwarded|ip|proxied)-.*)$/,
  /^((x-)?(client-(cert|dn)|remote|ssl)-?.*|x-arr-.*|x-envoy-.*|x-appengine-.*|tailscale-.*|x-pomerium-.*)$/,
  /^(x-(auth|authenticated|webauth|user|consumer|credential)(-.*)?|x-anonymous-consumer|x-(apigateway|endpoint)-api-.*)$/,
  /^(x-goog-(authenticated|iap)-.*|x-amzn-(oidc|mtls)-.*|x-ms-(client|token)-.*)$/,
];
const maxHeaderBytes = 8 * 1024;

/**
 * The provider's own headers, without those of the HTTP connection and without the names in `besides`, in lower case. Headers
 * beyond 8 KiB are left out.
 */
export function forwardedHeaders(
  headers: IncomingHttpHeaders,
  { besides, brandPrefix }: { besides: readonly string[]; brandPrefix: string },
): Record<string, string> {
  const kept: Record<string, string> = {};
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) {
    const spelled = normalizedHeaderName(name);
    if (neverForwarded.test(spelled) || overriding.some((names) => names.test(spelled))) continue;
    if (spelled.startsWith(brandPrefix)) continue;
    if (
      typeof value !== 'string' ||
      besides.includes(name) ||
      besides.includes(spelled) ||
      /[^\t\x20-\x7e]/.test(value)
    )
      continue;
    bytes += name.length + value.length;
    if (bytes > maxHeaderBytes) break;
    kept[name] = value;
  }
  return kept;
}
