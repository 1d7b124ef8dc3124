// As client-types.ts, of what runs in a page.

import { type Connected, connect, finishConnect, isConnectError } from '@trellis-run/client/connect';
import { useConnect } from '@trellis-run/client/react';

const url = 'https://trellis.example.com';

export async function begin(place: HTMLElement): Promise<Connected | undefined> {
  try {
    const made = await connect({ url, token: async () => 't', mode: 'frame', container: place });
    console.log(made.connectionId satisfies string, made.missingScopes satisfies string[]);
    // @ts-expect-error there is no such mode
    await connect({ url, token: 't', mode: 'tab' });
    return finishConnect();
  } catch (error) {
    if (isConnectError(error, 'denied')) console.log(error.reason satisfies string | undefined);
    // @ts-expect-error there is no such code
    isConnectError(error, 'no_such_code');
    return undefined;
  }
}

export function status(): 'idle' | 'connecting' | 'connected' | 'failed' {
  return useConnect({ url, getToken: () => 't' }).status;
}
