import * as oauth from 'oauth4webapi';
import type { Fetch } from '../outbound/outbound.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import {
  address,
  clientAuth,
  clientFetch,
  clientOf,
  isPlainHttp,
  type Network,
  type OAuthContext,
  protocolOf,
  serverOf,
  tokenFaultOf,
} from './oauth2-request.ts';
import { protocolFault, type TokenFault } from './token-fault.ts';
import { normalizingFetch } from './token-response.ts';

/**
 * The result of a revocation. `ended`: the provider has carried it out. `dead`: the token is dead, and may have been
 * dead before: a provider without `revocation.done_errors` accepts dead tokens like living ones (RFC 7009 §2.2).
 */
export type RevocationAnswer = { ok: true; was: 'ended' | 'dead' } | { ok: false; fault: TokenFault };

/**
 * Revokes a token at the provider (RFC 7009). `revocation.unit` of the definition says which other tokens end with it:
 * at Google, those of all connections of the account to the same project. Returns the fault `revocation_unsupported`
 * if the definition has no revocation endpoint.
 */
export async function revokeToken(
  context: OAuthContext & Network & { token: string },
): Promise<RevocationAnswer> {
  const { definition, client } = context;
  const { token } = protocolOf(definition);
  const { revocation } = definition;
  if (revocation === undefined) return { ok: false, fault: protocolFault('revocation_unsupported') };
  const server = {
    ...serverOf(context, address(context, token.url)),
    revocation_endpoint: address(context, revocation.url),
  };
  const by = revocation.client_auth === 'none' ? { fetch: context.fetch } : clientFetch(context);
  if ('fault' in by) return { ok: false, fault: by.fault };
  // The content of RFC 7009 responses does not matter; an empty body is read as an empty object.
  const answer = normalizingFetch({
    fetch: emptyAsObject(by.fetch),
    token,
    signal: context.signal,
  });
  const anonymous: oauth.ClientAuth = () => {};
  try {
    const response = await oauth.revocationRequest(
      server,
      clientOf(context),
      revocation.client_auth === 'none' ? anonymous : clientAuth(context),
      context.token,
      {
        [oauth.customFetch]: answer.fetch,
        [oauth.allowInsecureRequests]: isPlainHttp(server.revocation_endpoint),
      },
    );
    await oauth.processRevocationResponse(response);
    return { ok: true, was: revocation.done_errors.length > 0 ? 'ended' : 'dead' };
  } catch (error) {
    const fault = tokenFaultOf(error, { definition, client, seen: answer.seen() });
    return fault.error !== undefined && revocation.done_errors.includes(fault.error)
      ? { ok: true, was: 'dead' }
      : { ok: false, fault };
  }
}

/**
 * The unit that a revocation ends beside the token: connections of one account with equal units end together.
 * Undefined if it ends the token alone, or if there is no revocation.
 */
export function revocationUnit(
  definition: Pick<ProviderDefinition, 'revocation'>,
  clientId: string,
): string | undefined {
  const { revocation } = definition;
  if (revocation === undefined || revocation.unit === 'token') return undefined;
  const project =
    revocation.unit === 'project' && revocation.project_pattern !== undefined
      ? new RegExp(revocation.project_pattern, 'u').exec(clientId)?.[1]
      : undefined;
  return `${revocation.url} ${project ?? clientId}`;
}

function emptyAsObject(fetch: Fetch): Fetch {
  return async (url, init) => {
    const response = await fetch(url, init);
    if (response.status !== 200) return response;
    for await (const _chunk of response.body ?? []) break;
    return {
      status: 200,
      headers: response.headers,
      body: (async function* () {
        yield Buffer.from('{}');
      })(),
    };
  };
}
