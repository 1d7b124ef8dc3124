import { type FSWatcher, readdirSync, watch } from 'node:fs';
import { join } from 'node:path';

type FolderWatch = {
  /** Call it before each read of the folder: later changes are reported. Throws ENOENT if the folder does not exist. */
  renew(): void;
  close(): void;
};

/**
 * Reports changes in a folder of functions and its subfolders, with the name of the file if the system provides it. Each folder
 * has its own watcher, which is replaced before each check: Node's recursive watcher misses changes in folders that have replaced
 * others of the same name, as happens when branches are switched.
 */
export function watchFolder(
  folder: string,
  { onChange, onError }: { onChange: (file: string | null) => void; onError: (error: Error) => void },
): FolderWatch {
  const watchers: FSWatcher[] = [];

  function open(path: string): void {
    watchers.push(watch(path, (_, file) => onChange(file)).on('error', onError));
  }

  function openBelow(path: string): void {
    // Starts before the folder is read, so that entries created later are reported.
    open(path);
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const isWatched = entry.isDirectory() && entry.name !== 'node_modules' && !entry.name.startsWith('.');
      try {
        if (isWatched) openBelow(join(path, entry.name));
        else if (entry.isSymbolicLink()) open(join(path, entry.name));
      } catch (error) {
        // The entry was deleted since, or is a link without a target.
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      }
    }
  }

  function close(): void {
    for (const watcher of watchers.splice(0)) watcher.close();
  }

  return {
    renew() {
      close();
      openBelow(folder);
    },
    close,
  };
}
