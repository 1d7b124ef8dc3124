import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';

/** Who the next one is that signs in there, and how the ID token lies about it. */
export type Claims = Record<string, unknown>;

/** A small OpenID provider (OpenID Connect Core 1.0): the code flow with PKCE S256, and nobody to click. */
export type OidcIssuer = {
  url: string;
  clientId: string;
  clientSecret: string;
  /** Claims of the next ID token, beside those that are right. */
  next: Claims;
  /** How often a code was exchanged. */
  exchanges: number;
  close(): Promise<void>;
};

export async function startOidcIssuer(): Promise<OidcIssuer> {
  const { publicKey, privateKey } = await generateKeyPair('RS256');
  const codes = new Map<string, { nonce: string; challenge: string; redirectUri: string }>();
  const clientId = 'trellis';
  const clientSecret = randomBytes(16).toString('hex');
  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.writeHead(500).end());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const issuer: OidcIssuer = {
    url,
    clientId,
    clientSecret,
    next: {},
    exchanges: 0,
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '', url);
    const json = (status: number, body: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (pathname === '/.well-known/openid-configuration') {
      json(200, {
        issuer: url,
        authorization_endpoint: `${url}/authorize`,
        token_endpoint: `${url}/token`,
        jwks_uri: `${url}/keys`,
        id_token_signing_alg_values_supported: ['RS256'],
        response_types_supported: ['code'],
      });
    } else if (pathname === '/keys') json(200, { keys: [{ ...(await exportJWK(publicKey)), alg: 'RS256' }] });
    else if (pathname === '/authorize') {
      const asked = Object.fromEntries(searchParams);
      if (asked.client_id !== clientId || asked.code_challenge_method !== 'S256') return void json(400, {});
      const code = randomBytes(16).toString('hex');
      codes.set(code, {
        nonce: asked.nonce ?? '',
        challenge: asked.code_challenge ?? '',
        redirectUri: asked.redirect_uri ?? '',
      });
      const back = new URL(asked.redirect_uri ?? '');
      back.searchParams.set('code', code);
      back.searchParams.set('state', asked.state ?? '');
      response.writeHead(302, { location: back.href }).end();
    } else if (pathname === '/token') {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      const form = Object.fromEntries(new URLSearchParams(Buffer.concat(parts).toString()));
      const code = codes.get(form.code ?? '');
      codes.delete(form.code ?? '');
      const challenge = createHash('sha256')
        .update(form.code_verifier ?? '')
        .digest('base64url');
      const isRight =
        form.client_secret === clientSecret &&
        code?.challenge === challenge &&
        code.redirectUri === form.redirect_uri;
      if (!isRight || code === undefined) return void json(400, { error: 'invalid_grant' });
      issuer.exchanges += 1;
      const now = Math.floor(Date.now() / 1000);
      const claims = { iss: url, aud: clientId, iat: now, exp: now + 60, nonce: code.nonce, ...issuer.next };
      const idToken = await new SignJWT(claims).setProtectedHeader({ alg: 'RS256' }).sign(privateKey);
      json(200, { access_token: randomBytes(16).toString('hex'), token_type: 'Bearer', id_token: idToken });
    } else json(404, {});
  }
  return issuer;
}
