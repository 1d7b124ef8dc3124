import { useParams } from '@tanstack/react-router';

const key = 'trellis-environment';

/** The environment that the address names. */
export function useEnvironment(): string {
  const { environment } = useParams({ from: '/$environment' });
  return environment;
}

/** The one that was open last in this browser. */
export function lastEnvironment(): string | undefined {
  try {
    return localStorage.getItem(key) ?? undefined;
  } catch {
    return undefined;
  }
}

export function rememberEnvironment(name: string): void {
  try {
    localStorage.setItem(key, name);
  } catch {
    // A browser that keeps nothing opens the first one.
  }
}
