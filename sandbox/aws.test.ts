import assert from 'node:assert/strict';
import { test } from 'node:test';
import { signatureOf } from './aws.ts';

/** Published by AWS for all implementations: get-vanilla, get-vanilla-query-order-key-case, post-vanilla. */
for (const [name, method, rawUrl, signature] of [
  ['a GET', 'GET', '/', '5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31'],
  [
    'a query in another order',
    'GET',
    '/?Param2=value2&Param1=value1',
    'b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500',
  ],
  ['a POST', 'POST', '/', '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b'],
] as const) {
  test(`the signature of ${name} is that of AWS's test suite`, () => {
    const headers = { host: 'example.amazonaws.com', 'x-amz-date': '20150830T123600Z' };
    const secret = ['wJalrXUtnFEMI', 'K7MDENG+bPxRfiCYEXAMPLEKEY'].join('/');
    const scope = '20150830/us-east-1/service/aws4_request';
    const request = { method, rawUrl, headers, body: Buffer.alloc(0) };
    assert.equal(signatureOf(request, { secret, scope, names: 'host;x-amz-date' }), signature);
  });
}
