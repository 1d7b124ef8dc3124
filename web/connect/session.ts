import { useCallback, useEffect, useRef, useState } from 'react';
import { onSessionToken } from './host.ts';
import { keepToken, type Launch } from './launch.ts';
import {
  type Choices,
  fetchChoices,
  fetchOpening,
  fetchProgress,
  type Progress,
  type Session,
  type Settings,
} from './queries.ts';

/** The session, and its last known state if the service does not respond. */
export type SessionView = {
  session: Session | undefined;
  progress: Progress | undefined;
  settings: Settings | undefined;
  choices: Choices | undefined;
  fault: unknown;
  load: () => Promise<void>;
  /**
   * Fetches the progress. Resolves to true if a flow failed since the last call, or if the session is over. An expired
   * session is not over while a user may still return from the provider.
   */
  poll: () => Promise<boolean>;
};

/** The current token: the host page of a frame may send a new one at any time. */
export function useToken(launch: Launch): string | undefined {
  const [token, setToken] = useState(launch.token);
  useEffect(() => {
    if (!launch.isFramed) return;
    return onSessionToken((given) => {
      keepToken(launch.brand, given);
      setToken(given);
    });
  }, [launch]);
  return token;
}

/** The session of one token. Its component has the token as its key, so that no session shows the data of another. */
export function useSession(launch: Launch, token: string | undefined): SessionView {
  const [progress, setProgress] = useState<Progress>();
  const [settings, setSettings] = useState<Settings>();
  const [choices, setChoices] = useState<Choices>();
  const [fault, setFault] = useState<unknown>();
  const failedAt = useRef<string>(undefined);

  const load = useCallback(async () => {
    if (token === undefined) return;
    const session = { token, baseUrl: launch.baseUrl };
    setFault(undefined);
    try {
      const now = await fetchOpening(session);
      setProgress(now);
      setSettings(now.settings);
      failedAt.current = now.failure?.at;
      if (now.state === 'open' && now.connection === null) setChoices(await fetchChoices(session));
    } catch (error) {
      setFault(error);
    }
  }, [token, launch]);
  useEffect(() => void load(), [load]);

  const poll = useCallback(async () => {
    if (token === undefined) return false;
    const now = await fetchProgress({ token, baseUrl: launch.baseUrl });
    setProgress(now);
    const hasFailed = now.failure !== null && now.failure.at !== failedAt.current;
    failedAt.current = now.failure?.at ?? failedAt.current;
    const isOver = now.state === 'connected' || (now.state === 'expired' && !now.under_way);
    return isOver || hasFailed;
  }, [token, launch]);

  const session = token === undefined ? undefined : { token, baseUrl: launch.baseUrl };
  return { session, progress, settings, choices, fault, load, poll };
}
