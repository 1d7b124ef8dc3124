import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { Agent } from 'undici';
import { type Connecting, Connections, type Connector } from './outbound.ts';

/** Connects to nothing, for as long as it is let. */
function silent(sockets: Socket[]): Connector {
  return (_options, callback) => {
    const socket = new Socket().on('error', (error) => callback(error, null));
    sockets.push(socket);
    return socket;
  };
}

function agentBy(t: TestContext, connections: Connections, connector: Connector): Agent {
  const agent = new Agent({ factory: connections.factoryBy(connector) });
  t.after(() => agent.destroy());
  return agent;
}

/** Begins a call; returns its connection, and its end. */
function call(agent: Agent, origin = 'http://provider.example') {
  const taken = Promise.withResolvers<Connecting>();
  const ended = Promise.withResolvers<string>();
  const waiting = { onConnecting: taken.resolve };
  const options = { origin, path: '/', method: 'GET', waiting } as const;
  agent.dispatch(options, {
    onRequestStart() {},
    onResponseStart() {},
    onResponseData() {},
    onResponseEnd: () => ended.resolve('answered'),
    onResponseError: (_controller, error) => ended.resolve(error.message),
  });
  return { taken: taken.promise, ended: ended.promise };
}

test('an attempt to connect ends with its call, and no other', async (t) => {
  const sockets: Socket[] = [];
  const agent = agentBy(t, new Connections(), silent(sockets));
  const calls = [call(agent), call(agent), call(agent)];
  const [, second] = await Promise.all(calls.map(({ taken }) => taken));
  second?.giveUp();
  assert.equal(await calls[1]?.ended, 'the connection is not needed');
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    [false, true, false],
  );
});

test('a stop ends all attempts to connect', async (t) => {
  const sockets: Socket[] = [];
  const connections = new Connections();
  const agent = agentBy(t, connections, silent(sockets));
  const calls = [call(agent), call(agent, 'http://other.example')];
  connections.giveUpAll();
  await Promise.all(calls.map(({ ended }) => ended));
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    [true, true],
  );
});

test('an open connection is not given up', async (t) => {
  const server = createServer((_request, response) => response.end());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const sockets: Socket[] = [];
  const agent = agentBy(t, new Connections(), (_options, callback) => {
    const socket: Socket = connect(port, '127.0.0.1', () => callback(null, socket));
    sockets.push(socket);
    return socket;
  });
  const first = call(agent);
  assert.equal(await first.ended, 'answered');
  // A connection is free one turn behind its answer.
  await new Promise(setImmediate);
  const second = call(agent);
  (await second.taken).giveUp();
  assert.equal(await second.ended, 'answered');
  assert.equal(sockets.length, 1);
});
