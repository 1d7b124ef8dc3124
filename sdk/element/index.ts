import { TrellisConnectElement } from './element.ts';

// A page may load two copies.
if (globalThis.customElements !== undefined && customElements.get('trellis-connect') === undefined)
  customElements.define('trellis-connect', TrellisConnectElement);

declare global {
  interface HTMLElementTagNameMap {
    'trellis-connect': TrellisConnectElement;
  }
}

export { TrellisConnectElement, type TrellisConnectEvents } from './element.ts';
