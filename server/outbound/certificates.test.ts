import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { getCACertificates, setDefaultCACertificates, type TLSSocket } from 'node:tls';
import { makeCertificate, makeSelfSigned } from '../../test/support/certificate.ts';
import { readOutboundAllow } from '../config/setting-values.ts';
import { AppError } from '../errors.ts';
import { type ClientCertificate, createOutbound } from './outbound.ts';

const certificate = makeSelfSigned();
/** The same certificate as another text, which the pool takes for another certificate. */
const asText = (at: number): ClientCertificate => ({
  ...certificate,
  cert: certificate.cert + '\n'.repeat(at),
});

/** A server that demands the certificate, and answers `/held` when `release` is called. */
async function startServer(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'trellis-certificates-'));
  const own = makeCertificate(directory, { names: [], addresses: ['127.0.0.1'] });
  const authorities = getCACertificates('default');
  setDefaultCACertificates([...authorities, own.ca]);
  const sockets: TLSSocket[] = [];
  const held: ServerResponse[] = [];
  const { key, cert } = own;
  const server = createServer(
    { key, cert, ca: [certificate.cert], requestCert: true },
    (request, response) => {
      if (request.url !== '/held') response.end('at once');
      else held.push(response.writeHead(200));
      if (request.url === '/held') response.write('held ');
    },
  ).on('secureConnection', (socket) => sockets.push(socket));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
    setDefaultCACertificates(authorities);
    rmSync(directory, { recursive: true });
  });
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { origin, sockets, release: () => held.pop()?.end('released') };
}

function outboundFor(t: TestContext, allow = '127.0.0.0/8') {
  const outbound = createOutbound({ allow: readOutboundAllow(allow, []) });
  t.after(() => outbound.close());
  /** The text of the response; rejects with the error. */
  const call = (origin: string, path: string, clientCertificate?: ClientCertificate, onPart = () => {}) => {
    const ended = Promise.withResolvers<string>();
    let text = '';
    const limits = { headersTimeoutMs: 60_000, bodyIdleTimeoutMs: 60_000 };
    outbound.dispatch(
      { origin, path, method: 'GET', headers: [], body: null, isTest: false, clientCertificate, ...limits },
      {
        onRequestStart() {},
        onResponseStart() {},
        onResponseData(_controller, part) {
          text += part;
          onPart();
        },
        onResponseEnd: () => ended.resolve(text),
        onResponseError: (_controller, error) => ended.reject(error),
      },
    );
    return ended.promise;
  };
  return { outbound, call };
}

test('a call with a certificate reaches no address that is not allowed', async (t) => {
  const { origin, sockets } = await startServer(t);
  const { call } = outboundFor(t, '10.0.0.0/8');
  const isRefusal = (error: unknown) => error instanceof AppError && error.code === 'address_not_allowed';
  await assert.rejects(call(origin, '/', certificate), isRefusal);
  assert.deepEqual(sockets, []);
});

test('connections are kept for a limited number of certificates, and a running call is not cut off', async (t) => {
  const { origin, sockets, release } = await startServer(t);
  const { call } = outboundFor(t);
  const begun = Promise.withResolvers<void>();
  const held = call(origin, '/held', asText(0), begun.resolve);
  await begun.promise;
  for (let at = 1; at <= 200; at++) assert.equal(await call(origin, '/', asText(at)), 'at once');
  assert.equal(sockets.length, 201);
  // The connection is free after the end of the call has been handled.
  await setImmediate();
  assert.equal(await call(origin, '/', asText(200)), 'at once');
  assert.equal(sockets.length, 201, 'the latest certificate has an open connection');
  assert.equal(await call(origin, '/', asText(0)), 'at once');
  assert.equal(sockets.length, 202, 'the oldest one has none for further calls');
  release();
  assert.equal(await held, 'held released');
});

test('a stop ends the calls with certificates, and later calls make no connection', async (t) => {
  const { origin, sockets } = await startServer(t);
  const { call, outbound } = outboundFor(t);
  const begun = Promise.withResolvers<void>();
  const held = call(origin, '/held', certificate, begun.resolve);
  const ended = assert.rejects(held);
  await begun.promise;
  await outbound.close();
  await ended;
  await assert.rejects(call(origin, '/', certificate));
  assert.equal(sockets.length, 1);
});
