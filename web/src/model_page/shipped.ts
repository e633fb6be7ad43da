// The model that comes with the site: its files, and what the training noted of it.
import configAddress from "../../language_model/config.json?url";
import facts from "../../language_model/facts.json";
import weightsAddress from "../../language_model/model.safetensors?url";
import tokenizerAddress from "../../language_model/tokenizer.json?url";
import { t } from "../lib/messages.js";
import type { ModelFiles } from "../model/model_types.js";

export { facts };

async function fetched(address: string): Promise<Blob> {
  const response = await fetch(address);
  if (!response.ok) throw new Error(t`${address} could not be fetched (status ${response.status})`);
  return response.blob();
}

export async function shippedFiles(): Promise<ModelFiles> {
  const addresses = [weightsAddress, tokenizerAddress, configAddress] as const;
  const [weights, tokenizer, config] = await Promise.all(addresses.map(fetched));
  return { weights: weights as Blob, tokenizer, config };
}
