import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forwardedHeaders } from './webhook-bodies.ts';

const kept = (headers: Record<string, string>) =>
  Object.keys(forwardedHeaders(headers, { besides: ['x-secret'], brandPrefix: 'x-trellis-' }));

test('no header is forwarded that could change how the application or its proxy reads the request', () => {
  for (const name of [
    'x-http-method-override',
    'x-http-method',
    'x-method-override',
    'x-original-method',
    'x-original-url',
    'x-original-uri',
    'x-original-host',
    'x-rewrite-url',
    'x-override-url',
    'x-ms-original-url',
    'x-forwarded-for',
    'x-forwarded-host',
    'x-forwarded',
    'forwarded',
    'x-host',
    'x-url-scheme',
    'x-scheme',
    'front-end-https',
    'x-real-ip',
    'x-client-ip',
    'client-ip',
    'true-client-ip',
    'x-cluster-client-ip',
    'cf-connecting-ip',
    'fastly-client-ip',
    'x-remote-user',
    'remote-user',
    'x-auth-request-email',
    'x-middleware-subrequest',
    'x-middleware-rewrite',
    'x-amzn-oidc-data',
    'x-ms-client-principal',
    'x-goog-authenticated-user-email',
    'x-envoy-original-path',
    'x-ssl-client-verify',
    'ssl-client-cert',
    'x-accel-redirect',
    'x-sendfile',
    'x-user-id',
    'x-authenticated-userid',
    'x-webauth-user',
    'max-forwards',
    // Kong, Azure, Tailscale, Pomerium, Google's gateways and App Engine; WebLogic, Fly.io, DigitalOcean, Vercel; Next.js.
    'x-consumer-username',
    'x-credential-identifier',
    'x-anonymous-consumer',
    'x-arr-clientcert',
    'x-ms-token-aad-id-token',
    'tailscale-user-login',
    'x-pomerium-jwt-assertion',
    'x-apigateway-api-userinfo',
    'x-endpoint-api-userinfo',
    'x-appengine-user-email',
    'wl-proxy-client-ip',
    'fly-client-ip',
    'do-connecting-ip',
    'x-vercel-forwarded-for',
    'x-azure-clientip',
    'x-http-host-override',
    'x-client-cert',
    'x-client-dn',
    'x-invoke-path',
  ]) {
    assert.deepEqual(kept({ [name]: 'x' }), [], name);
    // CGI, WSGI and FastCGI hand these spellings to the application under one name (RFC 3875 §4.1.18).
    for (const sign of ['_', '.', '~'])
      assert.deepEqual(kept({ [name.replaceAll('-', sign)]: 'x' }), [], name.replaceAll('-', sign));
  }
  assert.deepEqual(
    kept({ x_trellis_signature: 'x', 'x-trellis-hmac-sha256': 'x', x_secret: 'x', 'x-secret': 'x' }),
    [],
  );
});

test('the headers that describe a webhook are forwarded', () => {
  const names = [
    'x-github-event',
    'x-hub-signature-256',
    'x-shopify-topic',
    'stripe-signature',
    'x-goog-resource-id',
  ];
  const more = [
    'x-slack-signature',
    'x-request-id',
    'x-hubspot-signature-v3',
    'linear-delivery',
    'x-zm-signature',
  ];
  for (const name of [...names, ...more]) assert.deepEqual(kept({ [name]: 'x' }), [name], name);
});
