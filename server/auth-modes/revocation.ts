import * as oauth from 'oauth4webapi';
import type { ProviderDefinition } from '../providers/definition.ts';
import {
  address,
  clientAuth,
  clientOf,
  faultOf,
  isPlainHttp,
  type Network,
  type OAuthContext,
  protocolOf,
  serverOf,
} from './oauth2-request.ts';
import { protocolFault, type TokenFault } from './token-fault.ts';
import { type Fetch, normalizingFetch, type SeenAnswer } from './token-response.ts';

/**
 * What a revocation came to. `ended`: the provider has carried it out; `dead`: the token is dead, and may have been
 * before: a provider without `revocation.done_errors` takes dead tokens like living ones (RFC 7009 §2.2).
 */
export type RevocationAnswer = { ok: true; was: 'ended' | 'dead' } | { ok: false; fault: TokenFault };

/**
 * Revokes a token at the provider (RFC 7009). What else ends with one that lives says `revocation.unit` of the
 * definition: at Google every connection of the account to the same project.
 * A definition without a revocation endpoint gives the fault `revocation_unsupported`.
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
  let seen: SeenAnswer | undefined;
  // RFC 7009 answers carry no content that matters; an empty body is read as an empty object.
  const fetchAnswer = normalizingFetch({
    fetch: emptyAsObject(context.fetch),
    token,
    signal: context.signal,
    seen: (answer) => {
      seen = answer;
    },
  });
  const anonymous: oauth.ClientAuth = () => {};
  try {
    const response = await oauth.revocationRequest(
      server,
      clientOf(context),
      revocation.client_auth === 'none' ? anonymous : clientAuth(context),
      context.token,
      {
        [oauth.customFetch]: fetchAnswer,
        [oauth.allowInsecureRequests]: isPlainHttp(server.revocation_endpoint),
      },
    );
    await oauth.processRevocationResponse(response);
    return { ok: true, was: revocation.done_errors.length > 0 ? 'ended' : 'dead' };
  } catch (error) {
    const fault = faultOf(error, { definition, client, seen });
    return fault.error !== undefined && revocation.done_errors.includes(fault.error)
      ? { ok: true, was: 'dead' }
      : { ok: false, fault };
  }
}

/**
 * What a revocation at the provider ends besides the token itself: equal texts end together, for the same account.
 * Undefined where it ends the token alone, or where there is no revocation.
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
